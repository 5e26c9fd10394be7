"""What is shut: pauses of the whole fleet, a kind, an agent or a tenant are rows that every claim reads."""

from __future__ import annotations

from dispatch.models import ClaimGate
from dispatch.ports import Gates


def read_gates() -> Gates:
    rows = list(ClaimGate.objects.values_list("scope", "name"))
    if not rows:
        return _OPEN
    names = {scope: frozenset(n for s, n in rows if s == scope) for scope in ClaimGate.SCOPES}
    return Gates(fleet=bool(names["fleet"]), kinds=names["kind"], agents=names["agent"], tenants=names["tenant"])


_OPEN = Gates()
