"""What an agent raises or returns to say more than a plain value says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dispatch.agents.clean import clean_text
from dispatch.errors import Invalid
from dispatch.ports import AnswerTerms
from dispatch.states import TERMINAL, ErrorCode

MAX_DELAY_S = 366 * 86400.0
MAX_QUESTION_BYTES = 4096
MAX_CHOICES = 20
MAX_DEFAULT = 4096
MAX_CHOICE_BYTES = 1024


def _seconds(after: float | timedelta) -> float:
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        raise Invalid("after is not a number of seconds or a timedelta", fields={"after": "not a duration"})
    if not 0 <= seconds <= MAX_DELAY_S:
        raise Invalid("after lies outside 0 to 366 days", fields={"after": "out of range"})
    return float(seconds)


class Retry(Exception):
    """Run this turn again; uses up an attempt. `after`: seconds or a timedelta; None: the usual backoff."""

    def __init__(self, after: float | timedelta | None = None) -> None:
        self.after_s = None if after is None else _seconds(after)
        super().__init__(after)


class Snooze(Exception):
    """Run this turn again after so many seconds (or a timedelta); uses no attempt."""

    def __init__(self, after: float | timedelta) -> None:
        self.after_s = _seconds(after)
        super().__init__(after)


class Discard(Exception):
    """End this turn as failed: another attempt is useless."""

    code = ErrorCode.DISCARDED

    def __init__(self, reason: str = "discarded by the agent") -> None:
        self.reason = clean_text(reason)
        super().__init__(reason)


class BudgetExceeded(Discard):
    """End this turn as failed: it may ask no model any more."""

    code = ErrorCode.BUDGET_EXCEEDED


class NeedsInput(Exception):
    """Suspend this turn until somebody answers; it runs again with `turn.reply`.

    `remind_after_s` reminds once of it. After `answer_within_s` the `default` answers; the two go together. Times are
    seconds or a timedelta.

    Refuses an empty question, one over 4 KiB, more than 20 choices (each a text of 1 to 1,024 bytes), a default that is
    none of the choices, and a reminder that would come after the default.
    """

    def __init__(
        self,
        question: str,
        choices: Sequence[str] | None = None,
        *,
        remind_after_s: float | timedelta | None = None,
        answer_within_s: float | timedelta | None = None,
        default: str | None = None,
    ) -> None:
        if not isinstance(question, str) or not question.strip():
            raise Invalid("a question is a text that is not empty", fields={"question": "empty"})
        self.question = clean_text(question)
        if len(self.question.encode()) > MAX_QUESTION_BYTES:
            raise Invalid(f"a question has at most {MAX_QUESTION_BYTES} bytes", fields={"question": "too long"})
        self.choices = None if choices is None else _choices(choices)
        self.terms = _terms(
            _wait("remind_after_s", remind_after_s), _wait("answer_within_s", answer_within_s), default, self.choices
        )
        super().__init__(question)


def _wait(name: str, given: float | timedelta | None) -> float | None:
    if given is None:
        return None
    try:
        seconds = _seconds(given)
    except Invalid:
        seconds = 0.0
    if seconds <= 0:
        raise Invalid(
            f"{name} is a number of seconds, or a timedelta, over 0 and up to 366 days", fields={name: "not a duration"}
        )
    return seconds


def _terms(
    remind_after_s: float | None, answer_within_s: float | None, default: str | None, choices: Sequence[str] | None
) -> AnswerTerms | None:
    if (answer_within_s is None) != (default is None):
        raise Invalid("answer_within_s and default go together", fields={"default": "one without the other"})
    if default is not None:
        if not isinstance(default, str) or not 0 < len(default) <= MAX_DEFAULT:
            raise Invalid(f"default is a text of 1 to {MAX_DEFAULT} characters", fields={"default": "not a short text"})
        default = clean_text(default)
        if choices is not None and default not in choices:
            raise Invalid("default is one of the choices", fields={"default": "no choice"})
    if remind_after_s is not None and answer_within_s is not None and remind_after_s >= answer_within_s:
        raise Invalid("remind_after_s is less than answer_within_s", fields={"remind_after_s": "too late"})
    if remind_after_s is None and answer_within_s is None:
        return None
    return AnswerTerms(remind_after_s=remind_after_s, answer_within_s=answer_within_s, default=default)


def _choices(choices: Sequence[str]) -> tuple[str, ...]:
    if isinstance(choices, str) or not isinstance(choices, Sequence) or not 1 <= len(choices) <= MAX_CHOICES:
        raise Invalid(f"choices is a list of 1 to {MAX_CHOICES} texts", fields={"choices": "not a short list"})
    if not all(isinstance(choice, str) and 0 < len(choice) <= MAX_CHOICE_BYTES for choice in choices):
        raise Invalid("each choice is a text that is neither empty nor long", fields={"choices": "not texts"})
    texts = tuple(clean_text(choice) for choice in choices)
    if any(len(text.encode()) > MAX_CHOICE_BYTES for text in texts):
        raise Invalid(f"a choice has at most {MAX_CHOICE_BYTES} bytes", fields={"choices": "too long"})
    return texts


class Cancelled(BaseException):
    """This run was told to stop. Not an Exception, so that `except Exception` in an agent does not swallow it."""

    def __init__(self, code: str = "cancelled", message: str = "") -> None:
        self.code = code
        super().__init__(message or code)


class GoalMissed(Exception):
    """A goal was not reached; raised by the loop, never by an agent.

    `code` is not_validated, budget_exceeded or agent_error.
    """

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)


class LeftOff(BaseException):
    """Hand the turn back between two iterations of its goal; raised by the loop, never by an agent."""


class ChildrenPending(BaseException):
    """Leave the run until these child jobs have ended; raised by `TurnContext.wait`, never by an agent itself."""

    def __init__(self, job_ids: Sequence[str]) -> None:
        self.job_ids = tuple(job_ids)
        super().__init__("waits for child jobs")


@dataclass(frozen=True, slots=True)
class Result:
    """A return value with a message for the job's timeline."""

    value: Any = None
    message: str | None = None


def ended(handles: Sequence[str], children: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The children of these handles, or all. Raise ChildrenPending while one of them has not ended."""
    by_id = {child["job_id"]: child for child in children}
    wanted = [str(handle) for handle in handles] or list(by_id)
    unknown = [job_id for job_id in wanted if job_id not in by_id]
    if unknown:
        raise Invalid("wait takes handles of jobs that this turn dispatched", fields={"handles": "not a child"})
    pending = [job_id for job_id in wanted if by_id[job_id]["status"] not in TERMINAL]
    if pending:
        raise ChildrenPending(pending)
    return [by_id[job_id] for job_id in wanted]
