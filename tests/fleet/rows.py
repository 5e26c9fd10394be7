"""Rows for tests of the fleet, as the authority and the workers would have left them."""

from __future__ import annotations

import itertools
import uuid
from datetime import timedelta
from typing import Any

from django.db import connection
from django.utils import timezone

from dispatch import wiring
from dispatch.authority.projection import project
from dispatch.models import (
    CheckFinding,
    DispatchWorker,
    Outcome,
    Schedule,
    Tick,
    WebhookDelivery,
    WebhookEndpoint,
    WebhookWatch,
    WorkItem,
    WorkItemEvent,
)
from fleet.access import api_key_create
from sessions_app.models import Goal, Session

_numbers = itertools.count(1)


def session(session_id: str = "", *, tenant: str = "t1", status: str = "idle", **more: Any) -> Session:
    now = timezone.now()
    return Session.objects.create(
        tenant=tenant,
        session_id=session_id or f"s-{next(_numbers)}",
        status=status,
        created_at=now,
        updated_at=now,
        **more,
    )


def item(of: Session, *, status: str = "ready", task: str = "do it", **more: Any) -> WorkItem:
    """A work item at the end of its session; the session's seq and head follow."""
    now = timezone.now()
    of.last_seq += 1
    terminal = status in ("succeeded", "failed", "cancelled", "dead_letter")
    if not terminal and of.head_seq is None:
        of.head_seq = of.last_seq
    of.save()
    live = status in ("leased", "running")
    values = {
        "job_id": f"orch-{uuid.uuid4().hex}",
        "tenant": of.tenant,
        "session": of,
        "session_seq": of.last_seq,
        "kind": "orchestrator_task",
        "agent_name": "echo",
        "status": status,
        "owner": "token" if live else None,
        "epoch": 1 if live or terminal else 0,
        "lease_expires_at": now + timedelta(seconds=60) if live else None,
        "task": task,
        "created_at": now - timedelta(seconds=30),
        "finished_at": now if terminal else None,
    }
    return WorkItem.objects.create(**{**values, **more})


def failed_item(of: Session, *, message: str = "it broke", **more: Any) -> WorkItem:
    made = item(of, status="failed", **more)
    Outcome.objects.create(
        work_item=made,
        epoch=made.epoch,
        status="failed",
        error_code="agent_error",
        error_message=message,
        created_at=timezone.now(),
    )
    WorkItemEvent.objects.create(
        work_item=made,
        at=timezone.now(),
        event="failed",
        from_status="running",
        to_status="failed",
        reason=message,
        epoch=made.epoch,
    )
    return made


def goal(of: Session, *, status: str = "ready", objective: str = "make it green", **more: Any) -> Goal:
    made = item(of, status=status, kind="goal_loop")
    now = timezone.now()
    return Goal.objects.create(
        tenant=of.tenant,
        session=of,
        work_item_id=made.pk,
        job_id=made.job_id,
        objective=objective,
        created_at=now,
        updated_at=now,
        **more,
    )


def worker(*runs: WorkItem, beat_s: float = 1, alive_s: float = 5, **more: Any) -> DispatchWorker:
    """A consumer that holds these runs, last reported `beat_s` seconds ago and started `alive_s` ago."""
    now = timezone.now()
    number = next(_numbers)
    values = {
        "worker_id": f"host:{1000 + number}:agent-dispatch:0",
        "token": uuid.uuid4().hex,
        "host": "host",
        "pid": 1000 + number,
        "capacity": 2,
        "active_sessions": [
            {"tenant": run.tenant, "session_id": run.session.session_id, "job_id": run.job_id} for run in runs
        ],
        "queue_backend": "SQLiteQueueBackend",
        "version": "1",
        "started_at": now - timedelta(seconds=alive_s),
        "last_heartbeat": now - timedelta(seconds=beat_s),
    }
    made = DispatchWorker.objects.create(**{**values, **more})
    WorkItem.objects.filter(pk__in=[run.pk for run in runs], owner__isnull=False).update(owner=made.token)
    return made


def tick(name: str = "rescue", *, age_s: float = 1) -> Tick:
    at = timezone.now() - timedelta(seconds=age_s)
    return Tick.objects.create(name=name, due_at=at + timedelta(seconds=5), last_started_at=at, last_success_at=at)


def finding(label: str, count: int = 1) -> CheckFinding:
    now = timezone.now()
    return CheckFinding.objects.create(label=label, count=count, first_seen=now, last_seen=now)


def schedule(
    name: str, *, tenant: str = "t1", run_s: float = 60, refused_s: float = 0, enabled: bool = True, **more: Any
) -> Schedule:
    """A schedule of every hour whose next run is in `run_s` seconds, and that has been refused for `refused_s`."""
    now = timezone.now()
    run_at = now + timedelta(seconds=run_s) if enabled else None
    values = {
        "cron": "0 * * * *",
        "task": "do it",
        "agent_name": "echo",
        "enabled": enabled,
        "due_at": run_at,
        "next_run_at": run_at,
        "refused_since": now - timedelta(seconds=refused_s) if refused_s else None,
        "last_error": "queue_full" if refused_s else "",
        "created_at": now,
        "updated_at": now,
    }
    return Schedule.objects.create(tenant=tenant, name=name, **{**values, **more})


def key(tenant: str = "t1", *scopes: str, platform: bool = False) -> dict[str, str]:
    """The header of a new key; without scopes it has them all."""
    _, text = api_key_create(
        name="test", tenant=tenant, scopes=scopes or ("read", "dispatch", "operate"), platform=platform
    )
    return {"authorization": f"Bearer {text}"}


def converge() -> None:
    """Make the queue say what the state says, as the repair tick does."""
    transport = wiring.transport()
    with transport.transaction():
        project(transport, set(WorkItem.objects.values_list("pk", flat=True)))


def drop(table: str) -> None:
    """Make the reads of one table fail for the rest of the test, which is rolled back."""
    with connection.cursor() as cursor:
        cursor.execute(f'ALTER TABLE "{table}" RENAME TO "{table}_gone"')


def callback(
    of: WorkItem, *, url: str = "https://ci.example.org/", state: str = "dead", age_s: float = 60, **more: Any
) -> WebhookDelivery:
    """A delivery of a job's end, made so long ago."""
    then = timezone.now() - timedelta(seconds=age_s)
    endpoint, _ = WebhookEndpoint.objects.get_or_create(
        tenant=of.tenant, url=url, defaults={"salt": "s", "created_at": then}
    )
    watch, _ = WebhookWatch.objects.get_or_create(work_item=of, endpoint=endpoint, url=url)
    number = next(_numbers)
    values = {
        "delivery_id": f"msg_{number}",
        "event_id": number,
        "event": f"job.{of.status}",
        "body": "{}",
        "due_at": then if state == "pending" else None,
    }
    return WebhookDelivery.objects.create(watch=watch, work_item=of, state=state, created_at=then, **{**values, **more})


def deliveries(**counts: int) -> None:
    """So many deliveries of callbacks by state, a minute old."""
    of = item(session(), status="succeeded")
    for state, count in counts.items():
        for _ in range(count):
            callback(of, state=state)
