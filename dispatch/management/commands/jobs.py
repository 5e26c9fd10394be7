"""`manage.py jobs VERB`: look at jobs and act on them from a terminal, through the actions that REST offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dispatch import selectors, wiring
from dispatch.access import Caller
from dispatch.api.actions import ACTIONS
from dispatch.api.base import known_job_id
from dispatch.management import job_texts as texts
from dispatch.management.operator import (
    EXIT_DONE,
    EXIT_SHORT,
    AddVerb,
    Answer,
    OperatorCommand,
    as_json,
    number,
    operator,
)
from dispatch.management.tail import JobTail
from dispatch.states import SUCCEEDED


class Command(OperatorCommand):
    help = "Look at jobs and act on them. Exit 0: done; 1: it ended otherwise; 2: a wrong call or no store; 3: refused."

    def add_verbs(self, verb: AddVerb) -> None:
        listed = verb("list", "jobs, newest first", list_jobs)
        for name in ("status", "session", "agent", "kind"):
            listed.add_argument(f"--{name}", help=f"only jobs of this {name}")
        listed.add_argument("--limit", help="jobs of a page, 1 to 500 (default 100)")
        listed.add_argument("--cursor", help="go on after an earlier page: the cursor that it named")
        _job(verb("show", "one job in full, with its timeline", show))
        cancelled = _job(verb("cancel", "ask that a job not run, or stop", cancel))
        cancelled.add_argument("--reason", default="", help="why, for the audit log and the job's timeline")
        retried = _job(verb("retry", "run a job again that ended without success", retry))
        retried.add_argument("--deadline-s", help="a new deadline, in seconds from now")
        _job(verb("explain", "why a job is not running", explain))
        followed = _job(
            verb(
                "tail",
                "follow a job until it has ended; exit 1: otherwise than succeeded",
                show,
            )
        )
        followed.add_argument("--new", action="store_true", help="leave out what was told before now")

    def run(self, options: dict[str, Any]) -> int:
        """`tail` tells as it goes; the other verbs answer once."""
        wiring.refuse_vanished_store()
        if options["verb"] != "tail":
            return super().run(options)
        tail = JobTail(
            caller=operator(options["tenant"]),
            job_id=known_job_id(options["job_id"]),
            tell=lambda event: self.tell(as_json(event) if options["json"] else texts.tailed(event)),
        )
        if options["new"]:
            tail.skip()
        return EXIT_DONE if tail.follow() == SUCCEEDED else EXIT_SHORT


def _job(parser: Any) -> Any:
    parser.add_argument("job_id", metavar="JOB", help="job id")
    return parser


def _ask(caller: Caller, action: str, **fields: Any) -> Any:
    """What REST's action answers."""
    return ACTIONS[action].handle(caller, {"action": action, **fields}).data


def list_jobs(caller: Caller, options: Mapping[str, Any]) -> Answer:
    asked = {
        "status": options["status"],
        "session_id": options["session"],
        "agent_name": options["agent"],
        "kind": options["kind"],
        "limit": None if options["limit"] is None else number("limit", options["limit"], int),
        "cursor": options["cursor"],
    }
    body = _ask(caller, "list", **{name: value for name, value in asked.items() if value is not None})
    return Answer(body=body, text=texts.listed(body))


def show(caller: Caller, options: Mapping[str, Any]) -> Answer:
    body = selectors.job_get(caller=caller, job_id=known_job_id(options["job_id"]))
    return Answer(body=body, text=texts.shown(body))


def cancel(caller: Caller, options: Mapping[str, Any]) -> Answer:
    body = _ask(caller, "cancel", job_id=options["job_id"], reason=options["reason"])
    return Answer(body=body, text=texts.cancelled(body))


def retry(caller: Caller, options: Mapping[str, Any]) -> Answer:
    deadline = options["deadline_s"]
    more = {} if deadline is None else {"deadline_s": number("deadline_s", deadline, float)}
    body = _ask(caller, "retry", job_id=options["job_id"], **more)
    return Answer(body=body, text=f"{body['job_id']} waits again, at the end of session {body['session_id']}.")


def explain(caller: Caller, options: Mapping[str, Any]) -> Answer:
    body = _ask(caller, "explain", job_id=options["job_id"])
    return Answer(body=body, text=texts.explained(body))
