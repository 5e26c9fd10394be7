"""What callers may do with schedules. Each service says what happened and writes the audit."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from dispatch import states, wiring
from dispatch.access import Caller
from dispatch.clock import store_now
from dispatch.errors import Invalid, ScheduleExists, ScheduleNotFound
from dispatch.inputs import read_input
from dispatch.maintenance import schedule_runs
from dispatch.models import Schedule
from dispatch.schedules.selectors import find_schedule, schedule_dict, schedule_fields
from dispatch.schedules.specs import ScheduleBody, ScheduleChange, ScheduleFields
from dispatch.schedules.timetables import timetable_of
from dispatch.services import audit, job_handle, known_agents

TIMES = {"cron", "timezone", "jitter_s", "enabled"}  # what decides when it runs next


def schedule_create(*, caller: Caller, body: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Make a schedule in the caller's tenant: (the schedule, whether it is new).

    One of this name with the same values is answered as it is. Raises Invalid, ScheduleExists.
    """
    sent = read_input(ScheduleBody, body)
    agent_name = _agent_named(sent.agent_name)
    try:
        with transaction.atomic():
            now = store_now()
            schedule = Schedule(tenant=caller.tenant, name=sent.name, created_at=now)
            _write(schedule, sent, agent_name, now)
            _time(schedule, now, by=caller.name)
            schedule.save(force_insert=True)
            _audit(caller, "create", schedule.name, tenant=schedule.tenant, result="applied")
    except IntegrityError:
        there = Schedule.objects.filter(tenant=caller.tenant, name=sent.name).first()
        if there is None:
            raise
        wanted = {**sent.model_dump(), "agent_name": agent_name}
        differ = sorted(field for field, value in schedule_fields(there).items() if wanted[field] != value)
        _audit(caller, "create", sent.name, tenant=caller.tenant, result="conflict" if differ else "already")
        if differ:
            raise ScheduleExists(fields=dict.fromkeys(differ, "differs from the schedule of this name")) from None
        return schedule_dict(there), False
    return schedule_dict(schedule), True


def schedule_change(*, caller: Caller, name: str, change: Mapping[str, Any]) -> dict[str, Any]:
    """Change some fields. What decides when it runs is read anew from now on. Raises Invalid, ScheduleNotFound."""
    with _locked(caller, name, "change") as schedule:
        before = schedule_fields(schedule)
        del before["name"]
        sent = read_input(ScheduleChange, {**before, **change})
        # one that is no longer known is looked for again only when it is changed
        agent_name = sent.agent_name if sent.agent_name == schedule.agent_name else _agent_named(sent.agent_name)
        values = {**sent.model_dump(), "agent_name": agent_name}
        changed = {field for field, value in values.items() if before[field] != value}
        if changed:
            now = store_now()
            _write(schedule, sent, agent_name, now)
            if changed & TIMES:
                _time(schedule, now, by=caller.name)
            schedule.save()
        result = "applied" if changed else "already"
        _audit(caller, "change", schedule.name, tenant=schedule.tenant, result=result)
    return schedule_dict(schedule)


def schedule_remove(*, caller: Caller, name: str, reason: str = "") -> None:
    """Remove a schedule and its history; its jobs stay. Raises ScheduleNotFound."""
    with _locked(caller, name, "remove", reason) as schedule:
        schedule.delete()
        _audit(caller, "remove", name, tenant=schedule.tenant, result="applied", reason=reason)


def schedule_pause(*, caller: Caller, name: str, reason: str = "") -> dict[str, Any]:
    """Turn it off: nothing falls due until it is resumed. Repeating is harmless. Raises ScheduleNotFound."""
    return _switch(caller, name, "pause", reason, enabled=False)


def schedule_resume(*, caller: Caller, name: str, reason: str = "") -> dict[str, Any]:
    """Turn it on again, from now: what would have come in between has not been missed. Raises ScheduleNotFound."""
    return _switch(caller, name, "resume", reason, enabled=True)


def schedule_run(*, caller: Caller, name: str, reason: str = "", key: str | None = None) -> tuple[dict[str, Any], bool]:
    """Dispatch one run now, whatever its due times, pause and overlap say: (the job's handle, whether it is new).

    A repeated key finds the same job. Raises ScheduleNotFound, QueueFull, QueueUnavailable.
    """
    schedule_runs.open_queue()
    with _locked(caller, name, "run", reason) as schedule:
        now = store_now()
        job_id = schedule_runs.manual_job_id(schedule, key if key is not None else uuid.uuid4().hex)
        submitted = schedule_runs.submit(schedule, job_id=job_id, due=now)
        if not submitted.existing:
            schedule_runs.note(schedule, "manual", due=now, at=now, job_id=job_id)
            schedule.last_run_at, schedule.last_job_id = now, job_id
            schedule.save(update_fields=["last_run_at", "last_job_id"])
        result = "already" if submitted.existing else "applied"
        _audit(caller, "run", schedule.name, tenant=schedule.tenant, result=result, reason=reason)
    return job_handle(job_id, submitted.session_id, states.ORCHESTRATOR_TASK), not submitted.existing


# -- parts -------------------------------------------------------------------------------------------------------------
def _switch(caller: Caller, name: str, verb: str, reason: str, *, enabled: bool) -> dict[str, Any]:
    with _locked(caller, name, verb, reason) as schedule:
        changes = schedule.enabled is not enabled
        if changes:
            now = store_now()
            schedule.enabled, schedule.updated_at = enabled, now
            _time(schedule, now, by=caller.name, reason=reason)
            schedule.save()
        result = "applied" if changes else "already"
        _audit(caller, verb, schedule.name, tenant=schedule.tenant, result=result, reason=reason)
    return schedule_dict(schedule)


@contextmanager
def _locked(caller: Caller, name: str, verb: str, reason: str = "") -> Iterator[Schedule]:
    """The schedule in a transaction of its own, locked to its end: the leader and other callers wait."""
    try:
        seen = find_schedule(caller, name)
        with transaction.atomic():
            schedule = Schedule.objects.select_for_update(no_key=True).filter(pk=seen.pk).first()
            if schedule is None:
                raise ScheduleNotFound(f"Schedule {name[:64]} not found")
            yield schedule
    except ScheduleNotFound:
        _audit(caller, verb, name, tenant=caller.tenant, result="not_found", reason=reason)
        raise


def _write(schedule: Schedule, sent: ScheduleFields, agent_name: str, now: datetime) -> None:
    schedule.cron = sent.cron
    schedule.timezone = sent.timezone
    schedule.task = sent.task
    schedule.agent_name = agent_name
    schedule.session_id = sent.session_id or ""
    schedule.payload = sent.payload
    schedule.priority = states.PRIORITIES.index(sent.priority)
    schedule.catch_up = sent.catch_up
    schedule.overlap = sent.overlap
    schedule.jitter_s = sent.jitter_s
    schedule.enabled = sent.enabled
    schedule.updated_at = now


def _time(schedule: Schedule, now: datetime, *, by: str, reason: str = "") -> None:
    """Say when it runs next: at its first due time after now, or never while it is off."""
    schedule.refused_since, schedule.last_error = None, ""
    if not schedule.enabled:
        schedule.due_at = schedule.next_run_at = None
        if schedule.paused_at is None:
            schedule.paused_at, schedule.paused_by, schedule.paused_reason = now, by, reason
        return
    schedule.paused_at, schedule.paused_by, schedule.paused_reason = None, "", ""
    following = timetable_of(schedule).after(now)
    schedule.due_at, schedule.next_run_at = following.at, following.run_at


def _agent_named(name: str) -> str:
    """The agent of that name, or the default one. Raises Invalid when nobody knows it."""
    wanted = name or wiring.registry().default_name()
    if not known_agents([wanted]):
        raise Invalid(
            f"no agent named {wanted} is known",
            fields={"agent_name": "must be an agent of this configuration or one that a worker has announced"},
        )
    return wanted


def _audit(caller: Caller, verb: str, name: str, **more: str) -> None:
    audit(caller, verb, "schedule", name, **more)
