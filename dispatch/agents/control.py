"""What an agent raises or returns to say more than a plain value says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from dispatch.agents.clean import clean_text
from dispatch.errors import Invalid

MAX_DELAY_S = 366 * 86400.0
MAX_QUESTION_BYTES = 4096
MAX_CHOICES = 20
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

    def __init__(self, reason: str = "discarded by the agent") -> None:
        self.reason = clean_text(reason)
        super().__init__(reason)


class NeedsInput(Exception):
    """Suspend this turn until somebody answers; it runs again with `turn.reply`.

    Refuses an empty question, one over 4 KiB, and more than 20 choices (each a text of 1 to 1,024 bytes).
    """

    def __init__(self, question: str, choices: Sequence[str] | None = None) -> None:
        if not isinstance(question, str) or not question.strip():
            raise Invalid("a question is a text that is not empty", fields={"question": "empty"})
        self.question = clean_text(question)
        if len(self.question.encode()) > MAX_QUESTION_BYTES:
            raise Invalid(f"a question has at most {MAX_QUESTION_BYTES} bytes", fields={"question": "too long"})
        self.choices = None if choices is None else _choices(choices)
        super().__init__(question)


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
