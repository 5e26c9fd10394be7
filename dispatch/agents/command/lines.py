"""The lines by which a command tells more than text: JSON objects on stdout that carry the key "fleetsite".

    {"fleetsite": "progress", "done": 1, "total": 3, "message": "…"}

Every other line is output, other programs' JSON included.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from dispatch.agents.control import Discard, NeedsInput, Result, Retry, Snooze
from dispatch.errors import Invalid

MARK = "fleetsite"
MAX_LINE_BYTES = 2 * 1024 * 1024
_MISSING = object()


class BadLine(Exception):
    """A line meant for us is not what it should be."""


class Hearer(Protocol):
    """Where lines go that matter while the command runs."""

    def text(self, text: str) -> None: ...
    def progress(self, done: float, total: float | None, message: str) -> None: ...
    def checkpoint(self, value: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class _Line:
    """One line's fields, taken one by one; what is left over is wrong."""

    number: int
    verb: str
    fields: dict[str, Any]

    def take(self, name: str, kinds: type | tuple[type, ...], what: str, default: Any = _MISSING) -> Any:
        value = self.fields.pop(name, default)
        if value is _MISSING:
            raise self.wrong(f"lacks {name}")
        if value is not default and (not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not object)):
            raise self.wrong(f"has a {name} that is not {what}")
        if isinstance(value, float) and not math.isfinite(value):
            raise self.wrong(f"has a {name} that is not finite")
        return value

    def wrong(self, problem: str) -> BadLine:
        return BadLine(f"line {self.number} of stdout, {MARK}: {self.verb}, {problem}")


class Lines:
    """Takes stdout apart. `result`, `state` and `ask` are what the last such lines said; `ask` is to be raised."""

    def __init__(self, hearer: Hearer) -> None:
        self.result = Result()
        self.state: dict[str, Any] | None = None
        self.ask: Exception | None = None
        self._hearer = hearer
        self._rest = bytearray()
        self._number = 0
        self._verbs: dict[str, Callable[[_Line], None]] = {
            "output": lambda line: hearer.text(line.take("text", str, "a text")),
            "progress": self._progress,
            "checkpoint": lambda line: hearer.checkpoint(line.take("value", object, "a value")),
            "state": self._state,
            "result": self._result,
            "needs_input": self._needs_input,
            "retry": self._retry,
            "snooze": self._snooze,
            "discard": self._discard,
        }

    def feed(self, data: bytes) -> None:
        """Take more of stdout. Raise BadLine."""
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._rest += part
            line = bytes(self._rest)
            self._rest.clear()
            self._line(line, b"\n")
        self._rest += rest
        if len(self._rest) > MAX_LINE_BYTES:
            if self._rest.lstrip()[:1] == b"{":
                raise BadLine(f"line {self._number + 1} of stdout has more than {MAX_LINE_BYTES} bytes")
            self._hearer.text(self._rest.decode("utf-8", "replace"))
            self._rest.clear()

    def close(self) -> None:
        """The end of stdout: what is left is a line too."""
        rest = bytes(self._rest)
        self._rest.clear()
        if rest:
            self._line(rest, b"")

    def _line(self, raw: bytes, end: bytes) -> None:
        self._number += 1
        found = _ours(raw)
        if found is None:
            self._hearer.text((raw + end).decode("utf-8", "replace"))
            return
        verb = found.pop(MARK)
        line = _Line(self._number, str(verb)[:40], found)
        act = self._verbs.get(verb) if isinstance(verb, str) else None
        if act is None:
            raise line.wrong(f"is not known; known are {', '.join(self._verbs)}")
        try:
            act(line)
        except Invalid as error:
            raise line.wrong(f"is refused: {error.message}") from None
        if line.fields:
            raise line.wrong(f"has the unknown field {next(iter(line.fields))[:40]}")

    def _progress(self, line: _Line) -> None:
        done = line.take("done", (int, float), "a number")
        total = line.take("total", (int, float), "a number", None)
        self._hearer.progress(done, total, line.take("message", str, "a text", ""))

    def _state(self, line: _Line) -> None:
        self.state = line.take("value", dict, "an object")

    def _result(self, line: _Line) -> None:
        self.result = Result(line.take("value", object, "a value"), message=line.take("message", str, "a text", None))

    def _needs_input(self, line: _Line) -> None:
        self.ask = NeedsInput(
            line.take("question", str, "a text"),
            choices=line.take("choices", list, "a list of texts", None),
            remind_after_s=line.take("remind_after_s", (int, float), "a number of seconds", None),
            answer_within_s=line.take("answer_within_s", (int, float), "a number of seconds", None),
            default=line.take("default", str, "a text", None),
        )

    def _retry(self, line: _Line) -> None:
        self.ask = Retry(line.take("after_s", (int, float), "a number of seconds", None))

    def _snooze(self, line: _Line) -> None:
        self.ask = Snooze(line.take("after_s", (int, float), "a number of seconds"))

    def _discard(self, line: _Line) -> None:
        self.ask = Discard(line.take("reason", str, "a text", "discarded by the command"))


def _ours(raw: bytes) -> dict[str, Any] | None:
    """The object, if the line is one that is meant for us."""
    if not raw.lstrip().startswith(b"{") or f'"{MARK}"'.encode() not in raw:
        return None
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and MARK in found else None
