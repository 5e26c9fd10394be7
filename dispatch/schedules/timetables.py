"""From a schedule's row to its due times."""

from __future__ import annotations

from dispatch.models import Schedule
from dispatch.schedules.catch_up import Timetable
from dispatch.schedules.recurrence import Recurrence


def timetable_of(schedule: Schedule) -> Timetable:
    """Raises BadCron or BadZone when the row holds what this version cannot read."""
    return Timetable(
        recurrence=Recurrence(schedule.cron, schedule.timezone),
        jitter_s=schedule.jitter_s,
        key=f"{schedule.tenant}\x00{schedule.name}",
    )
