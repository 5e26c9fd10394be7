"""The last runs of a schedule as a strip of cells: height and colour say what became of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dispatch.models import ScheduleRun

Runs = Sequence[tuple[ScheduleRun, str | None]]  # newest first, each with its job's public status
CELL, GAP, HEIGHT = 7, 2, 20
_TALL, _MIDDLE, _LOW = HEIGHT, 12, 5
# what a cell says: its style and its height
LOOKS = {
    "succeeded": ("success", _MIDDLE),
    "failed": ("danger", _TALL),
    "dead letter": ("danger", _TALL),
    "cancelled": ("warning", _MIDDLE),
    "skipped": ("warning", _LOW),
    "missed": ("warning", _LOW),
    "running": ("info", _MIDDLE),
    "suspended": ("warning", _MIDDLE),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    x: int
    y: int
    height: int
    variant: str
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Strip:
    """Cells from the oldest to the newest run."""

    cells: list[Cell]
    width: int
    height: int
    words: str


def strip(runs: Runs) -> Strip:
    words = [_word(run, status) for run, status in reversed(runs)]
    cells = []
    for place, ((run, _), word) in enumerate(zip(reversed(runs), words, strict=True)):
        variant, height = LOOKS.get(word, ("default", _LOW))
        title = f"{run.due_at:%Y-%m-%d %H:%M:%S} UTC: {word}"
        cells.append(Cell(x=place * (CELL + GAP), y=HEIGHT - height, height=height, variant=variant, title=title))
    said = f"The last {len(words)} runs, oldest first: {', '.join(words)}"
    return Strip(cells=cells, width=max(1, len(cells) * (CELL + GAP)), height=HEIGHT, words=said)


def _word(run: ScheduleRun, status: str | None) -> str:
    """What its job came to; else what became of the due time."""
    if status is not None:
        return status.replace("_", " ")
    return run.outcome if run.outcome in ("skipped", "missed") else "no longer kept"
