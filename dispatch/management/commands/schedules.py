"""`manage.py schedules list|add|show|pause|resume|run|remove`: tables for people, `--json` for scripts."""

from __future__ import annotations

import getpass
import json
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError

from dispatch.access import SCOPES, Caller
from dispatch.api.parsing import loads
from dispatch.envelope import is_name
from dispatch.errors import DispatchError, Invalid
from dispatch.inputs import read_input, refusal
from dispatch.models import Schedule
from dispatch.schedules import selectors, services
from dispatch.schedules.specs import RunBody, ScheduleBody, SwitchBody

EXIT_REFUSED = 1
EXIT_UNREADABLE = 2
NONE = "–"
LIST_PAGE = 500


class Command(BaseCommand):
    help = "Lists, makes and steers schedules. Exit 0: done; 1: refused; 2: the store or the queue cannot be used."

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="list|add|show|pause|resume|run|remove")
        self._verb(verbs, "list", "all schedules, or those of one tenant")
        self._add_fields(self._verb(verbs, "add", "make a schedule", named=True))
        self._verb(verbs, "show", "one schedule, its next runs and its last ones", named=True)
        for verb, text in (
            ("pause", "turn it off"),
            ("resume", "turn it on again, from now"),
            ("run", "dispatch one run now"),
            ("remove", "remove it; its jobs stay"),
        ):
            steered = self._verb(verbs, verb, text, named=True)
            steered.add_argument("--reason", default="", help="goes into the audit log")
            if verb == "run":
                steered.add_argument("--idempotency-key", default=None, help="a repeat finds the same job")

    @staticmethod
    def _verb(verbs: Any, verb: str, text: str, *, named: bool = False) -> Any:
        parser = verbs.add_parser(verb, help=text)
        if named:
            parser.add_argument("name", help="the schedule's name")
        parser.add_argument("--tenant", default="", help="the schedule's tenant; needed to add one")
        parser.add_argument("--json", action="store_true", help="print JSON as REST answers it")
        return parser

    @staticmethod
    def _add_fields(parser: Any) -> None:
        fields = ScheduleBody.model_fields
        for name in ("cron", "task"):
            parser.add_argument(f"--{name}", required=True, help=fields[name].description)
        for name in ("timezone", "agent-name", "session-id", "priority", "catch-up", "overlap"):
            parser.add_argument(f"--{name}", help=fields[name.replace("-", "_")].description)
        parser.add_argument("--jitter-s", type=float, help=fields["jitter_s"].description)
        parser.add_argument("--payload", help="an object of at most 1 MiB, as JSON text")
        parser.add_argument("--disabled", action="store_true", help="make it switched off")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            answer = ACTS[options["verb"]](_caller(options), options)
        except DispatchError as error:
            self.stderr.write(error.message)
            sys.exit(EXIT_UNREADABLE if error.http_status >= 500 else EXIT_REFUSED)
        except DatabaseError as error:
            self.stderr.write(f"The state store cannot be used ({type(error).__name__}); run migrate, or start it.")
            sys.exit(EXIT_UNREADABLE)
        if options["json"]:
            self.stdout.write(json.dumps(answer, ensure_ascii=False, indent=2))
            return
        for line in _told(options, answer):
            self.stdout.write(line)


# -- what each does ----------------------------------------------------------------------------------------------------
def _list(caller: Caller, options: dict[str, Any]) -> Any:
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = selectors.schedule_list(caller=caller, limit=LIST_PAGE, cursor=cursor)
        found += page["schedules"]
        cursor = page["next_cursor"]
        if cursor is None:
            return {"schedules": found}


def _add(caller: Caller, options: dict[str, Any]) -> Any:
    if not is_name(caller.tenant):
        raise refusal({"--tenant": "is missing: a schedule belongs to one tenant"})
    body: dict[str, Any] = {"name": options["name"]}
    for field in ScheduleBody.model_fields:
        if options.get(field) is not None:
            body[field] = options[field]
    if options["payload"] is not None:
        try:
            body["payload"] = loads(options["payload"].encode("utf-8", "surrogateescape"))
        except Invalid:
            raise refusal({"--payload": "must be a JSON object"}) from None
    schedule, _ = services.schedule_create(caller=caller, body={**body, "enabled": not options["disabled"]})
    return schedule


def _show(caller: Caller, options: dict[str, Any]) -> Any:
    return selectors.schedule_get(caller=caller, name=options["name"])


def _pause(caller: Caller, options: dict[str, Any]) -> Any:
    return services.schedule_pause(caller=caller, name=options["name"], reason=_reason(options))


def _resume(caller: Caller, options: dict[str, Any]) -> Any:
    return services.schedule_resume(caller=caller, name=options["name"], reason=_reason(options))


def _reason(options: dict[str, Any]) -> str:
    return read_input(SwitchBody, {"reason": options["reason"]}).reason


def _run(caller: Caller, options: dict[str, Any]) -> Any:
    sent = read_input(RunBody, {"reason": options["reason"], "idempotency_key": options["idempotency_key"]})
    handle, new = services.schedule_run(
        caller=caller, name=options["name"], reason=sent.reason, key=sent.idempotency_key
    )
    return handle if new else {**handle, "replayed": True}


def _remove(caller: Caller, options: dict[str, Any]) -> Any:
    services.schedule_remove(caller=caller, name=options["name"], reason=_reason(options))
    return {"name": options["name"], "removed": True}


ACTS: dict[str, Callable[[Caller, dict[str, Any]], Any]] = {
    "list": _list,
    "add": _add,
    "show": _show,
    "pause": _pause,
    "resume": _resume,
    "run": _run,
    "remove": _remove,
}


def _caller(options: dict[str, Any]) -> Caller:
    """The system itself, in the tenant given, or in the one that alone has a schedule of this name."""
    tenant = options["tenant"]
    if not tenant and options.get("name") and options["verb"] != "add":
        tenants = list(
            Schedule.objects.filter(name=options["name"]).order_by("tenant").values_list("tenant", flat=True)
        )
        if len(tenants) > 1:
            raise refusal({"--tenant": f"is needed: {', '.join(tenants[:5])} have a schedule of this name"})
        tenant = tenants[0] if tenants else ""
    return Caller(tenant=tenant, name=_user(), kind="system", scopes=frozenset(SCOPES), platform=not tenant)


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an id without a name, as in many containers
        return "manage.py"


# -- what people read --------------------------------------------------------------------------------------------------
def _told(options: dict[str, Any], answer: dict[str, Any]) -> list[str]:
    verb = options["verb"]
    if verb == "list":
        return _table_of(answer["schedules"])
    if verb == "show":
        return _shown(answer)
    if verb == "run":
        known = " (this key's, dispatched before)" if answer.get("replayed") else ""
        return [f"job {answer['job_id']}{known}"]
    if verb == "remove":
        return [f"schedule {answer['name']} removed"]
    following = f"next run {answer['next_run_at']}" if answer["enabled"] else "off"
    return [f"schedule {answer['name']} of tenant {answer['tenant']}: {following}"]


def _table_of(schedules: list[dict[str, Any]]) -> list[str]:
    if not schedules:
        return ["No schedule."]
    head = ("TENANT", "NAME", "CRON", "ZONE", "AGENT", "STATE", "NEXT RUN", "LAST RUN", "LAST JOB")
    rows = [
        (
            one["tenant"],
            one["name"],
            one["cron"],
            one["timezone"],
            one["agent_name"],
            _state(one),
            one["next_run_at"] or NONE,
            one["last_run_at"] or NONE,
            one["last_job_id"] or NONE,
        )
        for one in schedules
    ]
    return _columns([head, *rows])


def _shown(schedule: dict[str, Any]) -> list[str]:
    plain = ("tenant", "cron", "timezone", "agent_name", "session_id", "priority", "catch_up", "overlap", "jitter_s")
    lines = _columns(
        [
            ("name", schedule["name"]),
            ("state", _state(schedule)),
            *((field, str(NONE if schedule[field] is None else schedule[field])) for field in plain),
            ("task", schedule["task"].splitlines()[0][:100]),
            ("last run", schedule["last_run_at"] or NONE),
        ]
    )
    zone = ZoneInfo(schedule["timezone"])
    lines += ["", "next runs"]
    lines += _columns(
        [
            (f"  {datetime.fromisoformat(at).astimezone(zone):%a %Y-%m-%d %H:%M:%S %z}", at)
            for at in schedule["upcoming"]
        ]
    ) or ["  none: it is off"]
    lines += ["", "last runs"]
    lines += _columns(
        [
            (f"  {run['due_at']}", _outcome(run), run["job_id"] or NONE, run["status"] or NONE)
            for run in schedule["runs"]
        ]
    ) or ["  none yet"]
    return lines


def _state(schedule: dict[str, Any]) -> str:
    if not schedule["enabled"]:
        return f"off: {schedule['paused']['reason']}" if schedule["paused"]["reason"] else "off"
    return f"refused: {schedule['refused']['code']}" if schedule["refused"] else "on"


def _outcome(run: dict[str, Any]) -> str:
    return f"{run['outcome']} ×{run['count']}" if run["count"] > 1 else str(run["outcome"])


def _columns(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
