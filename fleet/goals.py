"""Reads of goals: how many there are, and how far those are that have not ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, QuerySet, Sum, Value
from django.db.models.functions import Substr

from dispatch import states
from dispatch.models import TurnCounter, WorkItem
from fleet.selectors import Tenants, scoped
from sessions_app.models import Goal

MAX_GOALS = 200
OBJECTIVE = 200  # characters of a goal's objective shown


@dataclass(frozen=True, kw_only=True, slots=True)
class GoalCounts:
    """`active`: not ended. `tracked`: all that are kept."""

    active: int
    tracked: int


def goal_counts(*, tenant: Tenants) -> GoalCounts:
    """In one query."""
    active, tracked = _goal_items(tenant), scoped(Goal.objects.all(), tenant)
    found = dict(_counted("active", active).union(_counted("tracked", tracked), all=True))
    return GoalCounts(active=found.get("active", 0), tracked=found.get("tracked", 0))


def _counted(what: str, rows: QuerySet[Any]) -> QuerySet[Any, tuple[str, int]]:
    named = rows.order_by().annotate(what=Value(what)).values("what")
    counted: QuerySet[Any, tuple[str, int]] = named.annotate(count=Count("pk")).values_list("what", "count")
    return counted


def _goal_items(tenant: Tenants) -> QuerySet[WorkItem]:
    """The work items of goals that have not ended; said in the words of both stores' partial indexes."""
    unfinished = WorkItem.objects.filter(
        kind=states.GOAL_LOOP, status__in=sorted(states.UNFINISHED), finished_at__isnull=True
    )
    return scoped(unfinished, tenant)


def goals_by_status() -> dict[str, int]:
    """Goals that have not ended, by public status, every such status present."""
    counts = dict.fromkeys((states.public_status(status) for status in sorted(states.UNFINISHED)), 0)
    rows = _goal_items(None).order_by().values_list("status").annotate(count=Count("pk"))
    for status, count in rows:
        counts[states.public_status(status)] += count
    return counts


def iteration_totals() -> dict[str, int]:
    """Committed iterations by what their validation said, since the store was made."""
    rows = TurnCounter.objects.filter(outcome__in=states.ITERATIONS.values()).order_by().values_list("outcome")
    found = dict(rows.annotate(total=Sum("count")))
    return {result: found.get(outcome, 0) for result, outcome in states.ITERATIONS.items()}


def goals_active(*, tenant: Tenants) -> list[dict[str, Any]]:
    """Goals that have not ended, newest first, at most 200; their objectives at most 200 characters."""
    status = dict(_goal_items(tenant).order_by("-pk").values_list("pk", "status")[:MAX_GOALS])
    rows = (
        Goal.objects.filter(work_item_id__in=list(status))
        .order_by("-work_item_id")
        .annotate(start=Substr("objective", 1, OBJECTIVE))
        .values_list("work_item_id", "job_id", "start", "iteration", "max_iterations")
    )
    return [
        {
            "job_id": job_id,
            "objective": start,
            "status": states.public_status(status[pk]),
            "iteration": iteration,
            "max_iterations": most,
        }
        for pk, job_id, start, iteration, most in rows
    ]
