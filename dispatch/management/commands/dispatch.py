"""`manage.py dispatch TASK`: dispatch one job from a terminal, through the service that REST calls, and follow it."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from dispatch import selectors, services, states, wiring
from dispatch.access import Caller
from dispatch.api.parsing import loads
from dispatch.errors import Invalid
from dispatch.inputs import refusal
from dispatch.management import job_texts as texts
from dispatch.management.operator import (
    EXIT_DONE,
    EXIT_SHORT,
    EXIT_TIMED_OUT,
    EXIT_UNUSABLE,
    GuardedCommand,
    as_json,
    number,
    operator,
)
from dispatch.management.tail import JobTail
from dispatch.outcomes import SUSPEND_INPUT
from dispatch.specs import DispatchBody, DispatchSpec

EXIT_ASKS = 3  # suspended: a person is asked
TEXTS = ("session_id", "priority", "run_at", "on_busy", "on_worker_lost", "idempotency_key", "callback_url")
NUMBERS: Mapping[str, type[int] | type[float]] = {"deadline_s": float, "max_attempts": int}
OBJECTS = ("payload", "metadata")


class Command(GuardedCommand):
    help = (
        "Dispatch a job. Exit 0: dispatched, or with --wait succeeded; 1: it ended otherwise; 2: nothing was "
        "dispatched; 3: it asks a person; 124: --timeout is over, and the job goes on."
    )
    exit_refused = EXIT_UNUSABLE

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("task", metavar="TASK", help="what to do; - reads it from standard input")
        parser.add_argument("--tenant", help="whose job it is; needed")
        parser.add_argument("--agent", help="the name of an agent; without it the default one")
        for name in (*TEXTS, *NUMBERS, *OBJECTS):
            option = "--session" if name == "session_id" else f"--{name.replace('_', '-')}"
            described = DispatchBody.model_fields[name].description
            parser.add_argument(option, dest=name, help=f"{described}{', as JSON' if name in OBJECTS else ''}")
        parser.add_argument(
            "--after", metavar="JOB", action="append", default=[], help="a job that must succeed first; may be repeated"
        )
        parser.add_argument("--wait", action="store_true", help="tell what it says and what happens to it, to its end")
        parser.add_argument("--timeout", metavar="S", help="with --wait: wait no longer than S seconds")
        parser.add_argument("--json", action="store_true", help="a JSON object a line: handle, events, result")

    def run(self, options: dict[str, Any]) -> int:
        wiring.refuse_vanished_store()
        timeout = _timeout(options)
        caller = operator(options["tenant"])
        if not caller.tenant:
            raise refusal({"tenant": "is missing: --tenant says whose job it is"})
        done = services.job_dispatch(caller=caller, spec=DispatchSpec.parse(_body(options)))
        job_id = done.handle["job_id"]
        self.tell(as_json(done.handle) if options["json"] else f"{job_id} in session {done.handle['session_id']}")
        return self._follow(caller, job_id, timeout, options["json"]) if options["wait"] else EXIT_DONE

    def _follow(self, caller: Caller, job_id: str, timeout: float | None, json: bool) -> int:
        tail = JobTail(
            caller=caller,
            job_id=job_id,
            tell=lambda event: self.tell(as_json(event) if json else texts.tailed(event)),
            ends=lambda status: status in states.TERMINAL or _asks(caller, job_id, status),
        )
        status = tail.follow(within=timeout)
        answer = selectors.job_result(caller=caller, job_id=job_id)
        if json:
            self.tell(as_json(answer))
        elif answer["result"] is not None:
            self.tell(texts.returned(answer["result"]))
        if status in states.TERMINAL:
            return EXIT_DONE if status == states.SUCCEEDED else EXIT_SHORT
        if _asks(caller, job_id, status):
            self.stderr.write(f"{job_id} {selectors.job_explain(caller=caller, job_id=job_id)['detail']}")
            return EXIT_ASKS
        self.stderr.write(f"{job_id} is {status} and goes on")
        return EXIT_TIMED_OUT


def _timeout(options: Mapping[str, Any]) -> float | None:
    if options["timeout"] is None:
        return None
    if not options["wait"]:
        raise refusal({"timeout": "goes with --wait"})
    if not (0 <= (seconds := number("timeout", options["timeout"], float)) < math.inf):
        raise refusal({"timeout": "must be a number of seconds, 0 or more"})
    return seconds


def _asks(caller: Caller, job_id: str, status: str) -> bool:
    """Whether it waits for a person, and not for its child jobs."""
    return status == states.SUSPENDED and selectors.find_job(caller, job_id).suspended_for == SUSPEND_INPUT


def _body(options: Mapping[str, Any]) -> dict[str, Any]:
    """The dispatch body that the arguments say. Raises Invalid."""
    task = sys.stdin.read() if options["task"] == "-" else options["task"]
    body: dict[str, Any] = {"task": task}
    if options["agent"] is not None:
        body["agent_name"] = options["agent"]
    if options["after"]:
        body["dependencies"] = options["after"]
    for name in (*TEXTS, *NUMBERS, *OBJECTS):
        if (given := options[name]) is None:
            continue
        if name in NUMBERS:
            body[name] = number(name, given, NUMBERS[name])
        else:
            body[name] = _object(name, given) if name in OBJECTS else given
    return body


def _object(name: str, text: str) -> dict[str, Any]:
    try:
        return loads(text.encode())
    except (Invalid, UnicodeEncodeError):
        raise refusal({name: "must be a JSON object"}) from None
