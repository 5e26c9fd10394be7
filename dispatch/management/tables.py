"""Text for people at a terminal: tables, and what others wrote made harmless."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

# control characters, and those that turn the direction of a line: a task or an output could rewrite the screen
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
CUT = 60  # characters of a cell


def harmless(text: str) -> str:
    """The text with nothing in it that a terminal would obey; line breaks and tabs stay."""
    return _UNSAFE.sub("\ufffd", text)


def cell(value: Any, *, cut: int | None = CUT) -> str:
    """One line: null is a dash, long text is cut with a mark."""
    if value is None or value == "":
        return "–"
    text = " ".join(harmless(str(value)).split())
    return text if cut is None or len(text) <= cut else text[: cut - 1] + "…"


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], *, cut: int | None = CUT) -> str:
    """Columns as wide as their widest cell; the headings alone when there is no row."""
    lines = [list(headings), *([cell(value, cut=cut) for value in row] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(headings))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def pairs(facts: Iterable[tuple[str, Any]]) -> str:
    """One fact a line, nothing cut."""
    known = list(facts)
    width = max((len(name) for name, _ in known), default=0)
    return "\n".join(f"{name.ljust(width)}  {cell(value, cut=None)}" for name, value in known)


def moment(at: str | None) -> str | None:
    """An RFC 3339 time without its fraction."""
    return None if at is None else re.sub(r"\.\d+", "", at)
