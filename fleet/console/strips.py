"""Strips of cells whose height and colour say what was: the last runs of a schedule, the last minutes of evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dispatch.models import ScheduleRun
from fleet.models import FleetSample

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


NO_DATA = "no data"
# height and style of a minute of evidence; the worse, the taller
EVIDENCE_LOOKS = {
    "healthy": ("success", _LOW),
    "degraded": ("warning", _MIDDLE),
    "partial": ("warning", _MIDDLE),
    "unavailable": ("danger", _TALL),
    NO_DATA: ("none", _TALL),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class EvidenceStrip:
    """A cell for each minute, oldest first. `begins` and `ends`: the times below it; `troubles`: all but healthy."""

    strip: Strip
    begins: str
    ends: str
    troubles: list[str]


def evidence_strip(samples: Sequence[FleetSample], now: datetime, *, minutes: int) -> EvidenceStrip:
    end = now.replace(second=0, microsecond=0)
    known = {sample.at: sample.evidence for sample in samples}
    times = [end - timedelta(minutes=n) for n in range(minutes - 1, -1, -1)]
    said = [known.get(at, NO_DATA) for at in times]
    if said[-1] == NO_DATA:  # the running minute has its sample somewhere in it
        times, said = times[:-1], said[:-1]
    cells = []
    for place, (at, word) in enumerate(zip(times, said, strict=True)):
        variant, height = EVIDENCE_LOOKS.get(word, EVIDENCE_LOOKS[NO_DATA])
        title = f"{at:%H:%M} UTC: {word}"
        cells.append(Cell(x=place * (CELL + GAP), y=HEIGHT - height, height=height, variant=variant, title=title))
    counts = ", ".join(f"{said.count(word)} {word}" for word in EVIDENCE_LOOKS if word in said)
    words = f"Evidence of the last {len(said)} minutes: {counts}"
    return EvidenceStrip(
        strip=Strip(cells=cells, width=len(cells) * (CELL + GAP), height=HEIGHT, words=words),
        begins=f"{times[0]:%H:%M}",
        ends=f"{times[-1]:%H:%M}",
        troubles=_troubles(times, said),
    )


def _troubles(times: Sequence[datetime], said: Sequence[str]) -> list[str]:
    """Stretches that were not healthy, newest first."""
    stretches: list[tuple[str, datetime, datetime]] = []
    for at, word in zip(times, said, strict=True):
        if stretches and stretches[-1][0] == word:
            stretches[-1] = (word, stretches[-1][1], at)
        else:
            stretches.append((word, at, at))
    return [
        f"{begin:%H:%M} to {end + timedelta(minutes=1):%H:%M}: {word}"
        for word, begin, end in reversed(stretches)
        if word != "healthy"
    ]
