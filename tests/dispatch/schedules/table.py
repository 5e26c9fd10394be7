"""Schedules over the real store, with a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from dispatch.access import Caller
from dispatch.maintenance.schedules import Materializer
from dispatch.models import Schedule, ScheduleCounter, ScheduleRun, WorkItem
from dispatch.schedules import services
from dispatch.schedules.timetables import timetable_of

ALL = frozenset({"read", "dispatch", "operate"})
MINE = Caller(tenant="t1", name="me", kind="api_key", scopes=ALL, request_id="r-1")
THEIRS = Caller(tenant="t2", name="they", kind="api_key", scopes=ALL)
PLATFORM = Caller(tenant="ops", name="ops", kind="api_key", scopes=ALL, platform=True)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
TICK_S = 5.0


class Clock:
    """Says what it is told."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def schedule(name: str = "s", *, caller: Caller = MINE, since: datetime = NOON, **body: Any) -> Schedule:
    """A schedule, every minute unless said otherwise, as if it had been made at `since`."""
    sent = {"name": name, "cron": "* * * * *", "task": "do it", "agent_name": "echo", **body}
    services.schedule_create(caller=caller, body=sent)
    made = Schedule.objects.get(tenant=caller.tenant, name=name)
    if made.enabled:
        following = timetable_of(made).after(since)
        made.due_at, made.next_run_at = following.at, following.run_at
        made.save()
    return made


def materializer(clock: Clock, leads: Callable[[], bool] = lambda: True) -> Materializer:
    return Materializer(leads=leads, tick_s=TICK_S, clock=clock)


def jobs(of: Schedule) -> list[WorkItem]:
    """The jobs that the schedule's history names, oldest first."""
    return list(WorkItem.objects.filter(metadata__schedule=of.name, tenant=of.tenant).order_by("pk"))


def due_times(of: Schedule) -> list[str]:
    """The due times that became jobs, as minutes and seconds."""
    return [str(item.metadata["scheduled_for"])[14:19] for item in jobs(of)]


def history(of: Schedule) -> list[tuple[str, int]]:
    return list(ScheduleRun.objects.filter(schedule=of).order_by("pk").values_list("outcome", "count"))


def counts() -> dict[str, int]:
    return dict(ScheduleCounter.objects.values_list("outcome", "count"))
