"""What failed lately, for people who look at the fleet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, F, Subquery, Window

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
    items = list(
        scoped(failed, tenant)
        .annotate(found=Window(Count("*")))
        .select_related("session")
        .order_by("-pk")
        .only("job_id", "session__session_id", "agent_name", "status", "epoch", "finished_at")[:limit]
    )
    outcomes = {
        (outcome.work_item_id, outcome.epoch): outcome
        for outcome in Outcome.objects.filter(work_item__in=items).defer("result")
    }
    return Failures(
        count=items[0].found if items else 0,
        latest=[_failure(item, outcomes.get((item.pk, item.epoch))) for item in items],
    )


def _failure(item: WorkItem, outcome: Outcome | None) -> Failure:
    return Failure(
        pk=item.pk,
        job_id=item.job_id,
        session_id=item.session.session_id,
        agent_name=item.agent_name,
        status=item.status,
        code=outcome.error_code if outcome else "",
        message=outcome.error_message if outcome else "",
        finished_at=item.finished_at or item.created_at,
    )
