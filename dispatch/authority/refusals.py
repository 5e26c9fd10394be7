"""Why a turn cannot be claimed: one rule for who asks by job id and for who holds a delivery."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from dispatch import states
from dispatch.ports import Gates, Serves
from dispatch.states import Refusal

# the row says so, and whatever changes it makes the turn known again
PARKED = frozenset(
    {
        Refusal.BEHIND_TURN,
        Refusal.NOT_DUE,
        Refusal.WAITING_DEPENDENCY,
        Refusal.SUSPENDED,
        Refusal.SESSION_PAUSED,
    }
)
DUPLICATE = frozenset({Refusal.TERMINAL, Refusal.LEASED_ELSEWHERE})


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """What decides whether an item may be claimed, as it was read at one moment."""

    item_id: int
    job_id: str
    tenant: str
    status: str
    session_seq: int
    head_seq: int | None
    desired: str
    kind: str
    agent_name: str
    due_at: datetime | None
    deadline: datetime | None


def refusal(item: Candidate, *, serves: Serves, gates: Gates, now: datetime) -> str | None:
    """The reason (states.Refusal), or None when it may be claimed."""
    if item.status in states.TERMINAL:
        return Refusal.TERMINAL
    if item.status in states.LIVE:
        return Refusal.LEASED_ELSEWHERE
    if item.status == states.SUSPENDED:
        return Refusal.SUSPENDED
    if item.deadline is not None and item.deadline <= now:
        return Refusal.EXPIRED
    if item.status == states.SUBMITTED:
        return Refusal.WAITING_DEPENDENCY
    if item.session_seq != item.head_seq:
        return Refusal.BEHIND_TURN
    shut = gates.fleet or item.kind in gates.kinds or item.agent_name in gates.agents or item.tenant in gates.tenants
    if item.desired == "pause" or shut:
        return Refusal.SESSION_PAUSED
    if item.due_at is not None and item.due_at > now:
        return Refusal.NOT_DUE
    if item.agent_name not in serves.agents or item.kind not in serves.kinds:
        return Refusal.NO_AGENT
    return None
