"""What a run returned, and what is to be written for it. Pure: no clock, no database, no agent code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from dispatch.json_text import json_size, json_text
from dispatch.ports import AnswerTerms, Lease, Settlement
from dispatch.retry import RetryPolicy, backoff_s
from dispatch.states import ErrorCode, Verb

MAX_STATE_BYTES = 256 * 1024
MAX_MESSAGE_BYTES = 4096
SUSPEND_INPUT = "input"
SUSPEND_CHILDREN = "children"


@dataclass(frozen=True, kw_only=True, slots=True)
class Succeeded:
    """The agent returned. `result` and `state` are cleaned JSON values."""

    result: Any
    state: dict[str, Any]
    message: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AgentFailed:
    """The agent raised; `message` is `TypeName: text`."""

    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TimedOut:
    """The run was told to stop at its time limit."""

    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryAsked:
    """The agent asked for another attempt, after so many seconds or after the usual backoff."""

    after_s: float | None = None
    message: str = "the agent asked for another attempt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Snoozed:
    """The agent wants to run later; no attempt is used."""

    after_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Discarded:
    """The agent said that another attempt is useless."""

    reason: str
    code: str = ErrorCode.DISCARDED


@dataclass(frozen=True, kw_only=True, slots=True)
class Missed:
    """A goal loop ended without its goal. `code`: not_validated | budget_exceeded | agent_error."""

    code: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class InputAsked:
    """The turn waits for a person."""

    question: str
    choices: Sequence[str] | None = None
    terms: AnswerTerms | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildrenAwaited:
    """The turn waits until these jobs have ended."""

    job_ids: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class CancelledRun:
    """The run was stopped on request or at its deadline. `code`: cancelled | expired."""

    code: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class HandedBack:
    """The worker gave the turn back; no attempt is used."""

    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseGone:
    """The lease was lost while the agent ran: nothing may be written, another holder has the turn."""


Writable = (
    Succeeded
    | AgentFailed
    | TimedOut
    | RetryAsked
    | Snoozed
    | Discarded
    | Missed
    | InputAsked
    | ChildrenAwaited
    | CancelledRun
    | HandedBack
)
Outcome = Writable | LeaseGone


def settlement_for(lease: Lease, outcome: Writable, policy: RetryPolicy, jitter: float) -> Settlement:
    """Decide what is written for `outcome`. `jitter` lies in [0, 1]; the job's own `max_attempts` is in the lease."""
    match outcome:
        case Succeeded():
            return _succeeded(lease, outcome)
        case AgentFailed(message=message):
            return _again(lease, policy, jitter, code=ErrorCode.AGENT_ERROR, message=message)
        case TimedOut(message=message):
            return _again(lease, policy, jitter, code=ErrorCode.TIMEOUT, message=message)
        case RetryAsked(after_s=after_s, message=message):
            return _again(lease, policy, jitter, code=ErrorCode.AGENT_ERROR, message=message, after_s=after_s)
        case Snoozed(after_s=after_s):
            return Settlement(lease=lease, verb=Verb.SNOOZE, delay_s=after_s)
        case Discarded(reason=reason, code=code):
            return Settlement(lease=lease, verb=Verb.FAILED, code=code, message=_short(reason))
        case Missed(code=code, message=message):
            return Settlement(lease=lease, verb=Verb.FAILED, code=code, message=_short(message))
        case InputAsked(question=question, choices=choices, terms=terms):
            return Settlement(
                lease=lease, verb=Verb.SUSPEND, code=SUSPEND_INPUT, question=question, choices=choices, terms=terms
            )
        case ChildrenAwaited(job_ids=job_ids):
            return Settlement(lease=lease, verb=Verb.SUSPEND, code=SUSPEND_CHILDREN, wait_for=tuple(job_ids))
        case CancelledRun(code=code, message=message):
            return Settlement(lease=lease, verb=Verb.CANCELLED, code=code, message=_short(message))
        case HandedBack(message=message):
            return Settlement(lease=lease, verb=Verb.HANDBACK, message=_short(message))
        case _ as unknown:
            assert_never(unknown)


def _succeeded(lease: Lease, outcome: Succeeded) -> Settlement:
    state = _changed(outcome.state, lease.state)
    size = 0 if state is None else json_size(state)
    if size > MAX_STATE_BYTES:
        # failed at once: another attempt would build the same state
        message = f"the session state has {size} bytes, at most {MAX_STATE_BYTES} are kept; it was not stored"
        return Settlement(lease=lease, verb=Verb.FAILED, code=ErrorCode.AGENT_ERROR, message=message)
    message_or_none = None if outcome.message is None else _short(outcome.message)
    return Settlement(lease=lease, verb=Verb.SUCCEEDED, result=outcome.result, state=state, message=message_or_none)


def _changed(state: dict[str, Any], before: dict[str, Any]) -> dict[str, Any] | None:
    """The state, or None when it says what it said before. To Python `1 == True`, to JSON it is another value."""
    return None if state == before and (not state or json_text(state) == json_text(before)) else state


def _again(
    lease: Lease, policy: RetryPolicy, jitter: float, *, code: str, message: str, after_s: float | None = None
) -> Settlement:
    """Retry while attempts are left, else dead-letter; either way the error is kept."""
    message = _short(message)
    if lease.attempt >= lease.max_attempts:
        return Settlement(lease=lease, verb=Verb.DEAD_LETTER, code=code, message=message)
    delay = backoff_s(policy, lease.attempt, jitter) if after_s is None else after_s
    return Settlement(lease=lease, verb=Verb.RETRY, delay_s=delay, code=code, message=message)


def _short(message: str) -> str:
    raw = message.encode("utf-8", "replace")
    if len(raw) <= MAX_MESSAGE_BYTES:
        return message
    return raw[: MAX_MESSAGE_BYTES - 3].decode("utf-8", "ignore") + "…"
