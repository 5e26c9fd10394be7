"""Caps and rates of agents and tenants: who may set them, and what they say. The claim keeps to the rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import Count, Q

from dispatch import states, wiring
from dispatch.access import Caller
from dispatch.clock import rfc3339, store_now
from dispatch.errors import Forbidden
from dispatch.gatekeeping import audit_scoped, refuse_unknown_agent
from dispatch.models import ClaimLimit, WorkItem


def limit_list(*, caller: Caller) -> dict[str, Any]:
    """Those that concern a caller: of agents, and of the tenants that it sees."""
    limits, tenant = ClaimLimit.objects.order_by("scope", "name"), caller.scope_tenant
    shown = limits if tenant is None else limits.filter(Q(scope="agent") | Q(name=tenant))
    return {"limits": [limit_dict(limit) for limit in shown]}


def limit_dict(limit: ClaimLimit) -> dict[str, Any]:
    return {
        "scope": limit.scope,
        "name": limit.name,
        "max_running": limit.max_running,
        "rate_per_s": limit.rate_per_s,
        "burst": None if limit.rate_per_s is None else limit.burst,
        "reason": limit.reason,
        "by": limit.set_by,
        "at": rfc3339(limit.set_at),
    }


def limit_set(
    *,
    caller: Caller,
    scope: str,
    name: str,
    max_running: int | None,
    rate_per_s: float | None,
    burst: int | None,
    reason: str,
) -> dict[str, Any]:
    """Set the limit of an agent or a tenant in place of an earlier one; a bucket begins full. Audited.

    What runs over a lower cap goes on. Without a `burst` a bucket holds what a second brings, at least one. Raises
    Forbidden, and Invalid for an agent that is none.
    """
    check_set(caller, scope, name)
    now = store_now()
    size = burst or max(1, math.ceil(rate_per_s or 1))
    with transaction.atomic():
        limit, _ = ClaimLimit.objects.update_or_create(
            scope=scope,
            name=name,
            defaults={
                "max_running": max_running,
                "rate_per_s": rate_per_s,
                "burst": size,
                "tokens": size,
                "refilled_at": now,
                "reason": reason,
                "set_by": caller.name[:200],
                "set_at": now,
            },
        )
        audit_scoped(caller, "limit", "limit", scope, name, reason, "applied")
    transaction.on_commit(wiring.transport().wake)  # the earlier limit may have been the narrower one
    return {"scope": scope, "name": name, "outcome": "applied", "limit": limit_dict(limit)}


def check_set(caller: Caller, scope: str, name: str) -> None:
    """Raise what `limit_set` would."""
    _check(caller)
    if scope == "agent":
        refuse_unknown_agent(name)


def running_under(limits: Iterable[ClaimLimit]) -> dict[tuple[str, str], int]:
    """{(scope, name): turns that hold a lease}, read for all of them at once."""
    counts = {(limit.scope, limit.name): 0 for limit in limits}
    live = WorkItem.objects.filter(status__in=sorted(states.LIVE))
    for scope, field in (("agent", "agent_name"), ("tenant", "tenant")):
        names = [name for of, name in counts if of == scope]
        if names:
            told = live.filter(**{f"{field}__in": names}).values_list(field).annotate(count=Count("id")).order_by()
            counts.update({(scope, name): count for name, count in told})
    return counts


def limit_clear(*, caller: Caller, scope: str, name: str, reason: str) -> dict[str, Any]:
    """Take the limit away. Audited. Raises Forbidden."""
    _check(caller)
    with transaction.atomic():
        gone, _ = ClaimLimit.objects.filter(scope=scope, name=name).delete()
        outcome = "applied" if gone else "already"
        audit_scoped(caller, "limit", "unlimit", scope, name, reason, outcome)
    if gone:
        transaction.on_commit(wiring.transport().wake)
    return {"scope": scope, "name": name, "outcome": outcome, "limit": None}


def _check(caller: Caller) -> None:
    if not (caller.platform and caller.may("operate")):
        raise Forbidden("A limit protects what all tenants share; setting it takes a platform key with `operate`.")
