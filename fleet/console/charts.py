"""Charts as plain numbers for an SVG: areas and lines over time, where a minute without a value is a gap.

Pure: samples in, coordinates and words out. The template stretches the drawing; labels stand beside it as text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from fleet.console.labels import duration, fine_duration

WIDTH, HEIGHT = 600, 120  # of the drawing's own units
LABELS = 4  # times written below it
SHORT_TIMES = (0.01, 0.02, 0.04, 0.1, 0.2, 0.4, 1, 2, 4)
TIMES = (10, 20, 40, 60, 120, 240, 600, 1200, 2400, 3600, 7200, 14400, 43200, 86400, 172800, 345600, 864000, 1728000)
TOPS = {duration: TIMES, fine_duration: (*SHORT_TIMES, *TIMES)}  # of a scale, by who writes it
NO_SAMPLE = "No sample in this time: a leading worker writes one a minute."

Values = Sequence[float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Span:
    """How far back a chart goes. One point stands for `step`, one row of the table for so many points."""

    key: str
    words: str
    length: timedelta
    step: timedelta
    per_row: int
    clock: str

    @property
    def points(self) -> int:
        return int(self.length / self.step)


def _span(key: str, words: str, hours: int, step_min: int, per_row: int, clock: str = "%H:%M") -> Span:
    return Span(
        key=key,
        words=words,
        length=timedelta(hours=hours),
        step=timedelta(minutes=step_min),
        per_row=per_row,
        clock=clock,
    )


SPANS = {
    span.key: span
    for span in (
        _span("1h", "1 h", 1, 1, 2),
        _span("3h", "3 h", 3, 1, 5),
        _span("24h", "24 h", 24, 10, 4),
        _span("7d", "7 d", 168, 60, 6, "%a %d %H:%M"),
    )
}
DEFAULT_SPAN = "3h"


def span_of(asked: str) -> Span:
    return SPANS.get(asked, SPANS[DEFAULT_SPAN])


@dataclass(frozen=True, kw_only=True, slots=True)
class Curve:
    """One series, a value or None for each point, an area, dashed, bad or limit. `right`: on its own scale."""

    name: str
    values: Values
    style: str
    write: Callable[[float], str]
    right: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """Something that somebody did at a moment."""

    at: datetime
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    style: str
    fill: str  # path of the surface below it; "" for a line
    line: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """A stretch of time: one without data, or one whose values are told when a pointer rests on it."""

    x: float
    width: float
    title: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    name: str
    style: str
    now: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    time: str
    values: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    """All that the template prints. `words` says in a sentence what the drawing shows."""

    key: str
    title: str
    words: str
    keys: list[Key]
    shapes: list[Shape]
    gaps: list[Block]
    slices: list[Block]
    marks: list[Block]
    left: list[str]
    right: list[str]
    times: list[str]
    rows: list[Row]
    empty: str  # why there is nothing to see; "" when there is


def whole(value: float) -> str:
    return f"{round(value):,}"


def rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")


def draw(
    *,
    key: str,
    title: str,
    curves: Sequence[Curve],
    span: Span,
    end: datetime,
    marks: Sequence[Mark],
    empty: str = NO_SAMPLE,
) -> Chart:
    """Draw the curves over the span that ends there; `empty` says why none of them may have a value."""
    start = end - span.length
    tops = {right: _top(curves, right) for right in (False, True)}
    told = _slices(curves, span, start)
    missing = [all(curve.values[n] is None for curve in curves) for n in range(span.points)]
    return Chart(
        key=key,
        title=title,
        words=_words(title, curves, missing, span, start),
        keys=[Key(name=c.name, style=c.style, now=_written(c, _last(c.values))) for c in curves],
        shapes=[_shape(curve, tops[curve.right]) for curve in curves],
        gaps=_gaps(missing),
        slices=[block for block, _ in told],
        marks=_marks(marks, start, span),
        left=_scale(curves, tops, right=False),
        right=_scale(curves, tops, right=True),
        times=[(start + span.length * n / (LABELS - 1)).strftime(span.clock) for n in range(LABELS)],
        rows=[row for _, row in reversed(told)],
        empty=empty if all(missing) else "",
    )


def _top(curves: Sequence[Curve], right: bool) -> float:
    """A round number at or above the highest value, whose half is round too."""
    highest = max((v for c in curves if c.right == right for v in c.values if v is not None), default=0.0)
    for curve in curves:
        if curve.right == right and curve.write in TOPS:
            return next((top for top in TOPS[curve.write] if top >= highest), highest)
    power = 1.0
    while True:
        for step in (2, 4, 6, 10):
            if step * power >= highest:
                return step * power
        power *= 10


def _scale(curves: Sequence[Curve], tops: dict[bool, float], *, right: bool) -> list[str]:
    """The labels from top to bottom; none where no curve has this scale."""
    write = next((curve.write for curve in curves if curve.right == right), None)
    return [] if write is None else [write(tops[right]), write(tops[right] / 2), write(0)]


def _runs(values: Values) -> list[tuple[int, list[float]]]:
    """Stretches with a value in each point, and where they begin."""
    runs: list[tuple[int, list[float]]] = []
    for place, value in enumerate(values):
        if value is None:
            continue
        if runs and runs[-1][0] + len(runs[-1][1]) == place:
            runs[-1][1].append(value)
        else:
            runs.append((place, [value]))
    return runs


def _shape(curve: Curve, top: float) -> Shape:
    """Each stretch reaches from the beginning of its first point to the end of its last."""
    wide = WIDTH / len(curve.values)
    lines, fills = [], []
    for first, values in _runs(curve.values):
        heights = [HEIGHT * (1 - value / top) for value in values]
        begin, end = first * wide, (first + len(values)) * wide
        middle = [(first + n + 0.5) * wide for n in range(len(values))]
        points = [(begin, heights[0]), *zip(middle, heights, strict=True), (end, heights[-1])]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        lines.append(f"M{path}")
        fills.append(f"M{begin:.1f} {HEIGHT}L{path}L{end:.1f} {HEIGHT}Z")
    return Shape(style=curve.style, line="".join(lines), fill="".join(fills) if curve.style == "area" else "")


def _gaps(missing: Sequence[bool]) -> list[Block]:
    wide = WIDTH / len(missing)
    stretches = _runs([1.0 if gone else None for gone in missing])
    return [
        Block(x=round(first * wide, 1), width=round(len(points) * wide, 1), title="no data")
        for first, points in stretches
    ]


def _slices(curves: Sequence[Curve], span: Span, start: datetime) -> list[tuple[Block, Row]]:
    """The table's rows, and what is told over the drawing: of each stretch the highest values."""
    wide = WIDTH / span.points
    told = []
    for first in range(0, span.points, span.per_row):
        time = (start + span.step * first).strftime(span.clock)
        values = [_written(curve, _highest(curve.values[first : first + span.per_row])) for curve in curves]
        title = f"{time}: " + ", ".join(f"{c.name} {text}" for c, text in zip(curves, values, strict=True))
        block = Block(x=round(first * wide, 1), width=round(span.per_row * wide, 1), title=title)
        told.append((block, Row(time=time, values=values)))
    return told


def _marks(marks: Sequence[Mark], start: datetime, span: Span) -> list[Block]:
    """One line for all that was done within a point."""
    wide = WIDTH / span.points
    said: dict[int, list[str]] = {}
    for mark in sorted(marks, key=lambda mark: mark.at):
        place = int((mark.at - start) / span.step)
        if 0 <= place < span.points:
            said.setdefault(place, []).append(f"{mark.at.strftime(span.clock)} {mark.words}")
    return [Block(x=round((n + 0.5) * wide, 1), width=0, title="; ".join(words[:4])) for n, words in said.items()]


def _words(title: str, curves: Sequence[Curve], missing: Sequence[bool], span: Span, start: datetime) -> str:
    if all(missing):
        return f"{title}, last {span.words}: no data"
    parts = []
    for curve in curves:
        highest = _highest(curve.values)
        if highest is None:
            parts.append(f"{curve.name} no data")
            continue
        at = (start + span.step * list(curve.values).index(highest)).strftime(span.clock)
        parts.append(f"{curve.name} now {_written(curve, _last(curve.values))}, highest {curve.write(highest)} at {at}")
    if any(missing):
        parts.append(f"no data for {duration(sum(missing) * span.step.total_seconds())}")
    return f"{title}, last {span.words}: {'; '.join(parts)}"


def _written(curve: Curve, value: float | None) -> str:
    return "no data" if value is None else curve.write(value)


def _highest(values: Values) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _last(values: Values) -> float | None:
    """That of the newest point, or of the one before while the newest minute is not over."""
    return next((value for value in reversed(values[-2:]) if value is not None), None)
