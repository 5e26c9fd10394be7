"""Reads of schedules for callers, in their tenant, JSON-ready."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import F, QuerySet, Window
from django.db.models.functions import RowNumber

from dispatch import states
from dispatch.access import Caller
from dispatch.clock import rfc3339, store_now
from dispatch.envelope import is_name
from dispatch.errors import ScheduleNotFound
from dispatch.models import Schedule, ScheduleRun, WorkItem
from dispatch.paging import decode_cursor, encode_cursor
from dispatch.schedules.timetables import timetable_of

UPCOMING = 5
SHOWN_RUNS = 20


def _schedules(caller: Caller) -> QuerySet[Schedule]:
    tenant = caller.scope_tenant
    return Schedule.objects.all() if tenant is None else Schedule.objects.filter(tenant=tenant)


def find_schedule(caller: Caller, name: str) -> Schedule:
    """The caller's own of that name first; a platform caller finds another tenant's. Raises ScheduleNotFound."""
    found = _schedules(caller).filter(name=name) if is_name(name) else Schedule.objects.none()
    schedule = found.filter(tenant=caller.tenant).first() or found.order_by("pk").first()
    if schedule is None:
        raise ScheduleNotFound(f"Schedule {name[:64]} not found")
    return schedule


def schedule_fields(schedule: Schedule) -> dict[str, Any]:
    """Its fields as a body would give them."""
    return {
        "name": schedule.name,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "task": schedule.task,
        "agent_name": schedule.agent_name,
        "session_id": schedule.session_id or None,
        "payload": schedule.payload,
        "priority": states.PRIORITIES[schedule.priority],
        "catch_up": schedule.catch_up,
        "overlap": schedule.overlap,
        "jitter_s": schedule.jitter_s,
        "enabled": schedule.enabled,
    }


def schedule_dict(schedule: Schedule) -> dict[str, Any]:
    """A schedule as lists show it."""
    paused = None
    if schedule.paused_at is not None:
        paused = {
            "by": schedule.paused_by or None,
            "reason": schedule.paused_reason or None,
            "at": rfc3339(schedule.paused_at),
        }
    refused = None
    if schedule.refused_since is not None:
        refused = {"code": schedule.last_error, "since": rfc3339(schedule.refused_since)}
    return {
        **schedule_fields(schedule),
        "tenant": schedule.tenant,
        "next_run_at": rfc3339(schedule.next_run_at),
        "last_run_at": rfc3339(schedule.last_run_at),
        "last_job_id": schedule.last_job_id or None,
        "paused": paused,
        "refused": refused,
        "created_at": rfc3339(schedule.created_at),
        "updated_at": rfc3339(schedule.updated_at),
    }


def schedule_list(*, caller: Caller, limit: int = 100, cursor: str | None = None) -> dict[str, Any]:
    """Newest first, by keyset."""
    schedules = _schedules(caller)
    before = decode_cursor("schedule", cursor)
    if before is not None:
        schedules = schedules.filter(pk__lt=before)
    found = list(schedules.order_by("-pk")[: limit + 1])
    page = found[:limit]
    following = encode_cursor("schedule", page[-1].pk) if len(found) > limit else None
    return {"schedules": [schedule_dict(schedule) for schedule in page], "next_cursor": following}


def schedule_get(*, caller: Caller, name: str) -> dict[str, Any]:
    """A schedule with its next runs and what became of its last ones, newest first."""
    schedule = find_schedule(caller, name)
    return {
        **schedule_dict(schedule),
        "upcoming": [rfc3339(at) for at in upcoming(schedule)],
        "runs": [
            {
                "due_at": rfc3339(run.due_at),
                "at": rfc3339(run.at),
                "outcome": run.outcome,
                "count": run.count,
                "job_id": run.job_id or None,
                "status": status,
            }
            for run, status in recent_runs(schedule)
        ],
    }


def upcoming(schedule: Schedule) -> list[datetime]:
    """When it runs next, in UTC; empty while it is off."""
    if schedule.due_at is None or schedule.next_run_at is None:
        return []
    now = store_now()
    later = timetable_of(schedule).upcoming(max(schedule.due_at, now), UPCOMING - 1)
    return [schedule.next_run_at, *(due.run_at for due in later)]


def recent_runs(schedule: Schedule) -> list[tuple[ScheduleRun, str | None]]:
    """The newest runs, each with its job's public status; None where no job was made, or it is no longer kept."""
    return runs_of([schedule])[schedule.pk]


def runs_of(schedules: Iterable[Schedule]) -> dict[int, list[tuple[ScheduleRun, str | None]]]:
    """{schedule key: its newest runs, newest first, with their jobs' public statuses}, read for all at once."""
    found: dict[int, list[tuple[ScheduleRun, str | None]]] = {schedule.pk: [] for schedule in schedules}
    place = Window(RowNumber(), partition_by=F("schedule_id"), order_by=F("id").desc())
    runs = list(
        ScheduleRun.objects.filter(schedule_id__in=list(found))
        .annotate(place=place)
        .filter(place__lte=SHOWN_RUNS)
        .order_by("-pk")
    )
    jobs = WorkItem.objects.filter(job_id__in={run.job_id for run in runs if run.job_id})
    statuses = dict(jobs.values_list("job_id", "status"))
    for run in runs:
        status = statuses.get(run.job_id)
        found[run.schedule_id].append((run, states.public_status(status) if status else None))
    return found


def failures_in_a_row(runs: Iterable[tuple[ScheduleRun, str | None]]) -> int:
    """How many of the newest runs that ended did so as failed or dead letter, back to the last other end."""
    count = 0
    for _, status in runs:
        if status in (states.FAILED, states.DEAD_LETTER):
            count += 1
        elif status in states.TERMINAL:
            break
    return count
