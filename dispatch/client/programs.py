"""What the client does, without doing it: programs that ask for a request or a pause and are told what came of it.

`sync` and `aio` run the same programs; all rules of repeating, waiting and resuming stand here, once.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar, cast

from dispatch.client import calls
from dispatch.client.calls import Call
from dispatch.client.errors import ApiError, BadAnswer, ClientError, ConnectionLost, JobFailed, JobUnfinished, error_of
from dispatch.client.shapes import TERMINAL, DispatchBody, DispatchFields, JobState

T = TypeVar("T")

TOO_MANY = 429
AWAY = frozenset({502, 503, 504})
_INLINE = "Task dispatched. Job ID: "


@dataclass(frozen=True, kw_only=True, slots=True)
class Send:
    """Ask: send this request."""

    call: Call[Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pause:
    """Ask: do nothing for so long."""

    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """Told: what the server answered."""

    status: int
    body: bytes
    retry_after: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """Told: there is no answer. `sent`: the request may have arrived."""

    why: str
    sent: bool


Program = Generator[Send | Pause, Reply | Lost | None, T]


@dataclass(frozen=True, kw_only=True, slots=True)
class Patience:
    """How long a call is tried again, and how the pauses between grow."""

    for_s: float = 60.0
    first_s: float = 0.2
    most_s: float = 10.0
    clock: Callable[[], float] = time.monotonic
    jitter: Callable[[], float] = random.random


@dataclass(kw_only=True)
class Tries:
    """The pauses of one call; `again` raises the failure once its time is over."""

    patience: Patience
    _number: int = field(default=0, init=False)
    _end: float = field(init=False)

    def __post_init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._number, self._end = 0, self.patience.clock() + self.patience.for_s

    def again(self, failure: ClientError) -> Pause:
        patience = self.patience
        pause = min(patience.most_s, patience.first_s * 2 ** min(self._number, 20)) * (0.5 + patience.jitter() / 2)
        self._number += 1
        if isinstance(failure, ApiError) and failure.retry_after_s is not None:
            pause = max(pause, failure.retry_after_s)
        if patience.clock() + pause > self._end:
            raise failure
        return Pause(seconds=pause)


def tried(call: Call[T], patience: Patience) -> Program[T]:
    """Send a request, again and again where that does no harm, until it is answered or the patience is over."""
    tries = Tries(patience=patience)
    while True:
        told = yield Send(call=call)
        assert told is not None
        answer = judge(told, repeatable=call.repeatable, answers=call.answers)
        if not isinstance(answer, Failure):
            return cast(T, answer)
        yield tries.again(answer.error) if answer.may_repeat else answer.give_up()


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """What is raised, unless it may be tried again."""

    error: ClientError
    may_repeat: bool

    def give_up(self) -> NoReturn:
        raise self.error


def judge(told: Reply | Lost, *, repeatable: bool, answers: frozenset[int]) -> Any:
    """The answer's JSON value, or a Failure."""
    if isinstance(told, Lost):
        return Failure(error=ConnectionLost(told.why), may_repeat=repeatable or not told.sent)
    try:
        body = json.loads(told.body)
    except ValueError:
        body = None
    refusal = None
    if told.status >= 400:
        refusal = error_of(body, status=told.status, retry_after_s=_seconds(told.retry_after))
    if refusal is None and told.status in answers and body is not None:
        return body
    # what is refused with 429 was not done; behind a 503 a commit may be hidden whose answer was lost
    may_repeat = told.status == TOO_MANY or (repeatable and told.status in AWAY)
    unknown = BadAnswer(f"HTTP {told.status} without a body of this API")
    return Failure(error=refusal or unknown, may_repeat=may_repeat)


def _seconds(text: str | None) -> float | None:
    """Of a Retry-After; a date in it is not waited for."""
    return float(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Handle:
    """What a dispatch left in our hand."""

    job_id: str
    session_id: str | None
    replayed: bool = False
    coalesced: bool = False


def _handle(body: Any) -> Handle:
    if isinstance(body, str) and body.startswith(_INLINE):  # AGENT_DISPATCH_BACKEND=inline
        return Handle(job_id=body.removeprefix(_INLINE), session_id=None)
    if not isinstance(body, dict) or not isinstance(body.get("job_id"), str):
        raise BadAnswer("the answer to a dispatch has no job_id")
    return Handle(
        job_id=body["job_id"],
        session_id=body.get("session_id"),
        replayed=bool(body.get("replayed")),
        coalesced=bool(body.get("coalesced")),
    )


def dispatch(task: str, fields: DispatchFields, patience: Patience) -> Program[Handle]:
    return _handle((yield from tried(calls.dispatch(task, fields), patience)))


def dispatch_many(jobs: list[DispatchBody], patience: Patience) -> Program[list[Handle | ApiError]]:
    body = yield from tried(calls.dispatch_many(jobs), patience)
    return [error_of(answer) or _handle(answer) for answer in body["jobs"]]


def retry(job_id: str, deadline_s: float | None, patience: Patience) -> Program[Handle]:
    return _handle((yield from tried(calls.retry(job_id, deadline_s), patience)))


def wait(job_id: str, timeout: float | None, patience: Patience) -> Program[JobState]:
    """The state as soon as the job has ended, or when the time is over; None waits for ever."""
    end = None if timeout is None else patience.clock() + timeout
    while True:
        left = calls.WAIT_S if end is None else max(0.0, end - patience.clock())
        state = yield from tried(calls.wait(job_id, left), patience)
        if state["status"] in TERMINAL or (end is not None and patience.clock() >= end):
            return state


def result(job_id: str, timeout: float | None, patience: Patience) -> Program[Any]:
    """What the agent returned, once the job has succeeded. Raises JobFailed; JobUnfinished when the time is over."""
    yield from wait(job_id, timeout, patience)
    answer = yield from tried(calls.result(job_id), patience)
    if answer["status"] == "succeeded":
        return answer["result"]
    if answer["status"] not in TERMINAL:
        raise JobUnfinished(job_id, status=answer["status"])
    error = answer["error"] or {"code": answer["status"], "message": ""}
    raise JobFailed(job_id, status=answer["status"], code=error["code"], message=error["message"])
