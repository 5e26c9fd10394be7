"""One run of a schedule: its job, its line in the schedule's history, its count. All in the caller's transaction."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from datetime import datetime

from django.db.models import F

from dispatch import states, wiring
from dispatch.authority.submit import NewItem, Submitted
from dispatch.clock import rfc3339
from dispatch.errors import QueueUnavailable
from dispatch.models import Schedule, ScheduleCounter, ScheduleRun, WorkItem
from dispatch.retry import MAX_ATTEMPTS

KEPT_RUNS = 50  # lines of history for each schedule


def due_job_id(schedule: Schedule, due: datetime) -> str:
    """The id of the job of one due time, always the same."""
    return _job_id("due", schedule.tenant, schedule.name, f"{due.timestamp():.0f}")


def manual_job_id(schedule: Schedule, key: str) -> str:
    """The id of a run on demand: the same for the same key."""
    return _job_id("run", schedule.tenant, schedule.name, key)


def _job_id(*parts: str) -> str:
    # three parts more than the id of a dispatch with an idempotency key is made of: the two never meet
    digest = hashlib.sha256("\x00".join(("schedule", *parts)).encode("utf-8", "surrogatepass")).hexdigest()
    return f"orch-{digest[:32]}"


def open_queue() -> None:
    """Open a queue that has a file of its own before the state is locked: that is the order of every process.

    One that cannot be opened refuses the run later on, in its turn.
    """
    transport = wiring.transport()
    if not transport.capabilities.joins_state_transaction:
        with suppress(QueueUnavailable):
            transport.room(1)


def submit(schedule: Schedule, *, job_id: str, due: datetime) -> Submitted:
    """Admit one run under this id; a repeat finds the same job. Raises QueueFull, QueueUnavailable.

    The agent was looked for when the schedule was written; if no worker has it now, the job waits for one that does.
    """
    agent = wiring.registry().get(schedule.agent_name)
    item = NewItem(
        job_id=job_id,
        tenant=schedule.tenant,
        session_id=schedule.session_id or job_id,
        kind=states.ORCHESTRATOR_TASK,
        agent_name=schedule.agent_name,
        priority=schedule.priority,
        max_attempts=(agent and agent.max_attempts) or MAX_ATTEMPTS,
        on_worker_lost=(agent and agent.on_worker_lost) or "retry",
        task=schedule.task,
        payload=schedule.payload,
        metadata={"schedule": schedule.name, "scheduled_for": rfc3339(due), "background": True},
        fingerprint={},  # an item with one is looked for by its id first
    )
    (submitted,) = wiring.submit([item])
    return submitted


def unfinished(schedule: Schedule) -> list[WorkItem]:
    """Jobs of its last run and of its kept ones that have not ended, newest first."""
    kept = schedule.runs.exclude(job_id="").values_list("job_id", flat=True)
    job_ids = {*kept, schedule.last_job_id}
    items = WorkItem.objects.filter(job_id__in=job_ids, status__in=sorted(states.UNFINISHED))
    return list(items.order_by("-pk").only("job_id", "status", "epoch"))


def note(
    schedule: Schedule,
    outcome: str,
    *,
    due: datetime,
    at: datetime,
    job_id: str = "",
    count: int = 1,
    late_s: float = 0,
) -> None:
    """Write what became of a due time into the schedule's history, forget the oldest line, and count it."""
    ScheduleRun.objects.create(schedule=schedule, due_at=due, at=at, outcome=outcome, job_id=job_id, count=count)
    oldest = schedule.runs.order_by("-pk").values_list("pk", flat=True)[KEPT_RUNS : KEPT_RUNS + 1]
    for pk in list(oldest):
        schedule.runs.filter(pk__lte=pk).delete()
    count_up(outcome, count, late_s=late_s)


def count_up(outcome: str, count: int = 1, *, late_s: float = 0) -> None:
    more = {"count": F("count") + count, "late_s": F("late_s") + late_s}
    if not ScheduleCounter.objects.filter(outcome=outcome).update(**more):
        ScheduleCounter.objects.get_or_create(outcome=outcome)  # with what another process has just counted
        ScheduleCounter.objects.filter(outcome=outcome).update(**more)
