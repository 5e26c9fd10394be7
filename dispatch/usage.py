"""What jobs and sessions have spent on models, as callers see it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.db.models import QuerySet, Sum

from dispatch.models import ModelTotal, ModelUsage

COUNTED = ("requests", "input_tokens", "output_tokens", "tool_calls", "unpriced")


def job_usage(item_pk: int) -> dict[str, Any] | None:
    """Over all runs of the job; None when it has asked no model."""
    return _summed(ModelUsage.objects.filter(work_item_id=item_pk))


def session_usage(session_pk: int) -> dict[str, Any] | None:
    """Over the session's jobs that retention has left; None when none of them has asked a model."""
    return _summed(ModelUsage.objects.filter(session_pk=session_pk))


def model_totals() -> list[ModelTotal]:
    """By agent, since the store was made."""
    return list(ModelTotal.objects.order_by("agent_name"))


def _summed(rows: QuerySet[ModelUsage]) -> dict[str, Any] | None:
    """`cost`: that of the requests whose cost is known, in decimal text; None when that of none is."""
    sums = rows.aggregate(cost=Sum("cost"), **{name: Sum(name) for name in COUNTED})
    if not sums["requests"]:
        return None
    return {
        "requests": sums["requests"],
        "input_tokens": sums["input_tokens"],
        "output_tokens": sums["output_tokens"],
        "tool_calls": sums["tool_calls"],
        "cost": None if sums["cost"] is None else _plain(sums["cost"]),
        "unpriced_requests": sums["unpriced"],
    }


def _plain(cost: Decimal) -> str:
    return f"{cost.normalize():f}"
