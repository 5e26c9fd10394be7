"""What all schedules tell together: how many due times became what, which are overdue, and whether somebody looks."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.db.models import Exists, Q, QuerySet
from django.db.models.functions import Now

from dispatch.maintenance.leadership import SILENT_TICKS
from dispatch.maintenance.schedules import GRACE_TICKS
from dispatch.models import Leadership, Schedule, ScheduleCounter
from dispatch.models.schedules import COUNTED


@dataclass(frozen=True, kw_only=True, slots=True)
class Total:
    """Due times that became one thing, and how late they were in all."""

    count: int
    late_s: float


def schedule_totals() -> dict[str, Total]:
    """By outcome, all outcomes present."""
    rows = ScheduleCounter.objects.filter(outcome__in=COUNTED).values_list("outcome", "count", "late_s")
    found = {outcome: Total(count=count, late_s=late_s) for outcome, count, late_s in rows}
    return {outcome: found.get(outcome, Total(count=0, late_s=0.0)) for outcome in COUNTED}


def schedules_overdue() -> int:
    """Schedules that should have run longer ago than a leader that dies may leave them; refused ones too."""
    return _overdue().count()


def schedules_neglected() -> int:
    """Those that are overdue although a leader lives: without one it goes without saying."""
    fresh = Now() - _ticks(SILENT_TICKS + 1)
    return _overdue().filter(Exists(Leadership.objects.filter(role="ticks", beat_at__gt=fresh))).count()


def _overdue() -> QuerySet[Schedule]:
    longest_ago = Now() - _ticks(GRACE_TICKS)
    return Schedule.objects.filter(Q(next_run_at__lt=longest_ago) | Q(refused_since__lt=longest_ago))


def _ticks(count: int) -> timedelta:
    return timedelta(seconds=count * settings.FLEETSITE.tick_s)
