"""What the samples tell: charts of the fleet, how numbers moved, and whether work stands still."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import fmean

from fleet.console.charts import NO_SAMPLE, Chart, Curve, Mark, Span, draw, rate, whole
from fleet.console.labels import duration, fine_duration
from fleet.models import FleetSample

EARLIER = timedelta(minutes=15)  # what a number is compared with
AROUND = timedelta(minutes=3)  # how far from that a sample may be
STALLED = timedelta(minutes=5)
LONGEST_STEP = timedelta(minutes=10)  # between two samples of which a rate is made

Read = Callable[[FleetSample], float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Flow:
    """Turns that ended in the last 15 min, from the totals at its ends. None where one of them is not known."""

    done_per_min: float | None
    failed_share: float | None  # of those that ended


def window(span: Span, now: datetime) -> tuple[datetime, datetime]:
    """Begin and end of a chart: the end is that of the running minute."""
    end = now.replace(second=0, microsecond=0) + timedelta(minutes=1)
    return end - span.length, end


def charts(samples: Sequence[FleetSample], span: Span, now: datetime, marks: Sequence[Mark]) -> dict[str, Chart]:
    start, end = window(span, now)

    def gauge(name: str, read: Read, style: str, write: Callable[[float], str] = whole, right: bool = False) -> Curve:
        points = [(sample.at, read(sample)) for sample in samples]
        return Curve(name=name, values=_binned(points, span, start, max), style=style, write=write, right=right)

    def pace(name: str, read: Read, style: str) -> Curve:
        return Curve(name=name, values=_binned(per_minute(samples, read), span, start, fmean), style=style, write=rate)

    def drawn(key: str, title: str, *curves: Curve, empty: str = NO_SAMPLE) -> Chart:
        return draw(key=key, title=title, curves=curves, span=span, end=end, marks=marks, empty=empty)

    made = [
        drawn(
            "waiting",
            "Ready turns",
            gauge("ready", lambda s: s.ready, "area"),
            gauge("oldest waits", lambda s: s.oldest_ready_s, "dashed", duration, right=True),
        ),
        drawn(
            "throughput",
            "Turns ended per minute",
            pace("done", lambda s: s.completed_total, "area"),
            pace("failed", lambda s: s.failed_total, "bad"),
        ),
        drawn(
            "slots",
            "Running turns",
            gauge("running", lambda s: s.running, "area"),
            gauge("slots", lambda s: s.slots, "limit"),
        ),
        drawn(
            "latency",
            "Waits and runs",
            gauge("waited, 95 %", lambda s: s.wait_p95_s, "area", fine_duration),
            gauge("waited, half", lambda s: s.wait_p50_s, "limit", fine_duration),
            gauge("ran, 95 %", lambda s: s.run_p95_s, "dashed", fine_duration, right=True),
            empty="No turn ended in this time, or nobody wrote samples.",
        ),
        drawn("workers", "Live workers", gauge("workers", lambda s: s.workers, "area")),
    ]
    return {chart.key: chart for chart in made}


def per_minute(samples: Sequence[FleetSample], read: Read) -> list[tuple[datetime, float | None]]:
    """How fast a total grew up to each sample; None where the one before is unknown or too long ago."""
    paces: list[tuple[datetime, float | None]] = []
    for before, sample in pairwise(samples):
        grown, apart = _grown(read(before), read(sample)), sample.at - before.at
        pace = None
        if grown is not None and apart <= LONGEST_STEP:
            pace = grown / (apart / timedelta(minutes=1))
        paces.append((sample.at, pace))
    return paces


def _binned(
    points: Sequence[tuple[datetime, float | None]],
    span: Span,
    start: datetime,
    of_many: Callable[[Sequence[float]], float],
) -> list[float | None]:
    """A value for each point of the chart; None where none is known."""
    bins: list[list[float]] = [[] for _ in range(span.points)]
    for at, value in points:
        place = int((at - start) / span.step)
        if value is not None and at >= start and place < span.points:
            bins[place].append(value)
    return [of_many(values) if values else None for values in bins]


def moved(samples: Sequence[FleetSample], now: datetime, value: float | None, read: Read) -> str:
    """How a number differs from the one 15 min ago, in words behind an arrow; "" when that one is not known."""
    earlier = _near(samples, now - EARLIER)
    was = None if earlier is None else read(earlier)
    if value is None or was is None:
        return ""
    if round(value) == round(was):
        return "→ as 15 min ago"
    arrow = "↑" if value > was else "↓"
    return f"{arrow} from {whole(was)} in 15 min"


def flow(samples: Sequence[FleetSample], now: datetime) -> Flow:
    first, last = _near(samples, now - EARLIER), _near(samples, now)
    if first is None or last is None or last.at <= first.at:
        return Flow(done_per_min=None, failed_share=None)
    done, failed = (
        _grown(before, after)
        for before, after in ((first.completed_total, last.completed_total), (first.failed_total, last.failed_total))
    )
    minutes = (last.at - first.at) / timedelta(minutes=1)
    share = None if done is None or failed is None or not done + failed else failed / (done + failed)
    return Flow(done_per_min=None if done is None else done / minutes, failed_share=share)


def _grown(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0, after - before)


def stalled(samples: Sequence[FleetSample], now: datetime) -> bool:
    """Whether turns have run for 5 min and none has ended, by samples that reach over all of that time."""
    since = now - STALLED
    seen = [sample for sample in samples if sample.at >= since - timedelta(minutes=1)]
    if len(seen) < 2 or seen[0].at > since + timedelta(minutes=1) or now - seen[-1].at > AROUND:
        return False
    ends = {(sample.completed_total, sample.failed_total) for sample in seen}
    return len(ends) == 1 and None not in next(iter(ends)) and all(sample.running for sample in seen)


def _near(samples: Sequence[FleetSample], at: datetime) -> FleetSample | None:
    near = [sample for sample in samples if abs(sample.at - at) <= AROUND]
    return min(near, key=lambda sample: abs(sample.at - at), default=None)
