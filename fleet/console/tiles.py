"""Numbers that stand in a row on top of a page, each with the way to what it counts."""

from __future__ import annotations

from dataclasses import dataclass

from fleet.console.labels import QUIET

UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """`trend`: how the number moved, "" where that is not known."""

    title: str
    value: str
    note: str
    trend: str = ""
    href: str = ""
    variant: str = QUIET


def number(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"
