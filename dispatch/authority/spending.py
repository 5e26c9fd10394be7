"""What turns spend on models, counted request by request, so that a run that fails has it kept.

Who calls holds the item's row as its holder (`fenced`): nobody else writes the run's own rows.
"""

from __future__ import annotations

from decimal import Decimal

from django.db.models import F, Sum

from dispatch.models import ModelTotal, ModelUsage
from dispatch.ports import Lease
from dispatch.spending import Budget, ModelSpend, Spent

DIGITS = Decimal("0.000000001")


def request_begins(lease: Lease, model: str, budget: Budget) -> tuple[str, int, int] | None:
    """Count a request that is about to be sent, its cost unknown; answers instead the limit that is used up."""
    used_up = _spent(lease, budget).exceeded(budget)
    if used_up is None:
        owner = {"session_pk": lease.session_pk, "tenant": lease.tenant, "agent_name": lease.agent_name}
        row, _ = ModelUsage.objects.get_or_create(
            work_item_id=lease.item_id, epoch=lease.epoch, model=model, defaults=owner
        )
        row.requests += 1
        row.unpriced += 1
        row.save()
    return used_up


def request_ended(lease: Lease, model: str, spend: ModelSpend) -> None:
    """Add what came of a request that had begun."""
    row = ModelUsage.objects.get(work_item_id=lease.item_id, epoch=lease.epoch, model=model)
    if spend.refused:
        row.requests -= 1
        row.unpriced -= 1
    elif spend.cost is not None:
        row.unpriced -= 1
        row.cost = ((row.cost or Decimal(0)) + spend.cost).quantize(DIGITS)
    row.input_tokens += spend.input_tokens
    row.output_tokens += spend.output_tokens
    row.tool_calls += spend.tool_calls
    row.save()
    if not spend.refused:
        _add_up(lease.agent_name, spend)


def _spent(lease: Lease, budget: Budget) -> Spent:
    turn = ModelUsage.objects.filter(work_item_id=lease.item_id).aggregate(
        requests=Sum("requests"), input=Sum("input_tokens"), output=Sum("output_tokens")
    )
    session = 0
    if budget.session_max_tokens is not None:
        whole = ModelUsage.objects.filter(session_pk=lease.session_pk).aggregate(
            input=Sum("input_tokens"), output=Sum("output_tokens")
        )
        session = (whole["input"] or 0) + (whole["output"] or 0)
    return Spent(
        requests=turn["requests"] or 0,
        tokens=(turn["input"] or 0) + (turn["output"] or 0),
        session_tokens=session,
    )


def _add_up(agent_name: str, spend: ModelSpend) -> None:
    """The one row that others write too: last, so that it is held for the shortest time."""
    totals = ModelTotal.objects.filter(agent_name=agent_name)
    more = {
        "requests": F("requests") + 1,
        "input_tokens": F("input_tokens") + spend.input_tokens,
        "output_tokens": F("output_tokens") + spend.output_tokens,
    }
    if not totals.update(**more):
        ModelTotal.objects.get_or_create(agent_name=agent_name)
        totals.update(**more)
