"""Pauses of claiming: who may shut and open which gate, and what is shut. The claim reads the rows (dispatch.gates)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.db import transaction
from django.db.models import Q, QuerySet

from dispatch import states, wiring
from dispatch.access import Caller
from dispatch.clock import rfc3339, store_now
from dispatch.errors import Forbidden
from dispatch.inputs import refusal
from dispatch.models import ClaimGate
from dispatch.services import audit, known_agents


def concerning(gates: QuerySet[ClaimGate], tenants: Collection[str]) -> QuerySet[ClaimGate]:
    """Those that concern these tenants: of the fleet, of kinds and of agents, and their own."""
    return gates.filter(~Q(scope="tenant") | Q(name__in=tenants))


def gate_list(*, caller: Caller) -> dict[str, Any]:
    gates, tenant = ClaimGate.objects.order_by("scope", "name"), caller.scope_tenant
    shown = gates if tenant is None else concerning(gates, [tenant])
    return {"gates": [gate_dict(gate) for gate in shown]}


def gate_dict(gate: ClaimGate) -> dict[str, Any]:
    return {
        "scope": gate.scope,
        "name": gate.name or None,
        "reason": gate.reason,
        "by": gate.set_by,
        "at": rfc3339(gate.set_at),
    }


def gate_shut(*, caller: Caller, scope: str, name: str, reason: str) -> dict[str, Any]:
    """Let nothing of this scope be claimed, until it is opened; what runs goes on. Audited.

    `already` leaves the first one's name and reason. Raises Forbidden, and Invalid for a kind or agent that is none:
    a slip of the pen would pause nothing and look as if it had.
    """
    check_shut(caller, scope, name)
    with transaction.atomic():
        gate, made = ClaimGate.objects.get_or_create(
            scope=scope,
            name=name,
            defaults={"reason": reason, "set_by": caller.name[:200], "set_at": store_now()},
        )
        audit_scoped(caller, "gate", "shut", scope, name, reason, "applied" if made else "already")
    return {"scope": scope, "name": name or None, "outcome": "applied" if made else "already", "gate": gate_dict(gate)}


def check_shut(caller: Caller, scope: str, name: str) -> None:
    """Raise what `gate_shut` would."""
    _check(caller, scope, name)
    if scope == "kind" and name not in states.KINDS:
        raise refusal({"name": f"must be one of {', '.join(states.KINDS)}"})
    if scope == "agent":
        refuse_unknown_agent(name)


def gate_open(*, caller: Caller, scope: str, name: str, reason: str) -> dict[str, Any]:
    """Let what was shut be claimed again, and wake who may claim it. Audited. Raises Forbidden."""
    _check(caller, scope, name)
    with transaction.atomic():
        opened, _ = ClaimGate.objects.filter(scope=scope, name=name).delete()
        audit_scoped(caller, "gate", "open", scope, name, reason, "applied" if opened else "already")
    if opened:
        transaction.on_commit(wiring.transport().wake)
    return {"scope": scope, "name": name or None, "outcome": "applied" if opened else "already", "gate": None}


def _check(caller: Caller, scope: str, name: str) -> None:
    """A tenant's own gate is its own; whatever else is shut stops everybody."""
    if not caller.may("operate"):
        raise Forbidden
    if not (caller.platform or (scope == "tenant" and caller.sees(name))):
        raise Forbidden("A key shuts and opens its own tenant; the fleet, a kind or an agent takes a platform key.")


def refuse_unknown_agent(name: str) -> None:
    if not known_agents([name]):
        raise refusal({"name": "must be an agent of this configuration or one that a worker has announced"})


def audit_scoped(caller: Caller, kind: str, verb: str, scope: str, name: str, reason: str, result: str) -> None:
    """Audit what was done to the gate or limit (`kind`) of a scope; a tenant's own stands in its own log."""
    tenant = name if scope == "tenant" else caller.tenant
    audit(caller, verb, kind, f"{scope}:{name}" if name else scope, tenant=tenant, reason=reason, result=result)
