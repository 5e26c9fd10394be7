"""What is shut: pauses of the whole fleet, a kind, an agent or a tenant are rows that every claim reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dispatch.models import ClaimGate
from dispatch.ports import Gates


def read_gates() -> Gates:
    return gates_from(list(ClaimGate.objects.values_list("scope", "name")))


def gates_from(rows: Sequence[tuple[str, str]]) -> Gates:
    """Of (scope, name) pairs."""
    if not rows:
        return _OPEN
    names = {scope: frozenset(n for s, n in rows if s == scope) for scope in ClaimGate.SCOPES}
    return Gates(fleet=bool(names["fleet"]), kinds=names["kind"], agents=names["agent"], tenants=names["tenant"])


def shut_by(rows: Iterable[ClaimGate]) -> Gates:
    """What these pauses shut."""
    return gates_from([(gate.scope, gate.name) for gate in rows])


_OPEN = Gates()
