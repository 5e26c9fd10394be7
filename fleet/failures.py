"""What failed lately, for people who look at the fleet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, F, OuterRef, Subquery, Window

from dispatch import states
from dispatch.models import Outcome, WorkItem
from fleet.selectors import Tenants, scoped

FAILURE_WINDOW = 10_000  # the newest jobs among which failures are looked for; no index is kept for them


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A job that failed or was dead-lettered, with the error of its last run."""

    pk: int
    job_id: str
    session_id: str
    agent_name: str
    status: str
    code: str
    message: str
    finished_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Failures:
    """Failures among the newest 10,000 jobs of all tenants: how many, and the latest of them."""

    count: int
    latest: list[Failure]


def failed_jobs(*, tenant: Tenants, limit: int) -> Failures:
    newest = WorkItem.objects.order_by("-pk").annotate(first=F("pk") - FAILURE_WINDOW).values("first")[:1]
    failed = WorkItem.objects.filter(pk__gt=Subquery(newest), status__in=[states.FAILED, states.DEAD_LETTER])
    outcome = Outcome.objects.filter(work_item=OuterRef("pk"), epoch=OuterRef("epoch"))
    items = list(
        scoped(failed, tenant)
        .annotate(
            found=Window(Count("*")),
            error_code=Subquery(outcome.values("error_code")[:1]),
            error_message=Subquery(outcome.values("error_message")[:1]),
        )
        .select_related("session")
        .order_by("-pk")
        .only("job_id", "session__session_id", "agent_name", "status", "epoch", "created_at", "finished_at")[:limit]
    )
    return Failures(count=items[0].found if items else 0, latest=[_failure(item) for item in items])


def _failure(item: Any) -> Failure:
    return Failure(
        pk=item.pk,
        job_id=item.job_id,
        session_id=item.session.session_id,
        agent_name=item.agent_name,
        status=item.status,
        code=item.error_code or "",
        message=item.error_message or "",
        finished_at=item.finished_at or item.created_at,
    )
