"""The charts of a page: which span is asked for, and what is drawn of the samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.http import HttpRequest

from fleet.console.charts import SPANS, Chart, Mark, Span, span_of
from fleet.console.trends import LONGEST_STEP, charts, window
from fleet.models import FleetSample
from fleet.samples import samples_since

LOOK_BACK = timedelta(minutes=20)  # what the numbers beside a chart need, however short it is


@dataclass(frozen=True, kw_only=True, slots=True)
class SpanLink:
    words: str
    href: str
    is_chosen: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Graphs:
    """`charts` by their keys; None when the samples could not be read."""

    spans: list[SpanLink]
    charts: dict[str, Chart] | None


def span_asked(request: HttpRequest) -> Span:
    return span_of(request.GET.get("span", ""))


def read_samples(span: Span, now: datetime) -> list[FleetSample]:
    """Those of the span, and one before it: a pace begins there."""
    start, _ = window(span, now)
    return samples_since(min(start - LONGEST_STEP, now - LOOK_BACK))


def graphs(samples: Sequence[FleetSample] | None, span: Span, now: datetime, marks: Sequence[Mark]) -> Graphs:
    return Graphs(
        spans=[
            SpanLink(words=one.words, href=f"?span={one.key}", is_chosen=one.key == span.key) for one in SPANS.values()
        ],
        charts=None if samples is None else charts(samples, span, now, marks),
    )
