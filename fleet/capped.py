"""How many of the claimable turns the caps of agents and tenants let start: a worker for the others would idle."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from dispatch.models import ClaimLimit
from dispatch.room import room_of, running_of

Lane = tuple[str, str, int]  # agent, tenant, claimable turns
Key = tuple[str, str]  # scope, name


def caps() -> dict[Key, int]:
    """The room that each cap leaves now. Rates are left out: what waits for a token starts soon, and wants its slot."""
    now = datetime.now(UTC)
    capped = ClaimLimit.objects.filter(max_running__isnull=False)
    rooms = {}
    for limit in capped:
        limit.rate_per_s = None
        rooms[limit.scope, limit.name] = room_of(limit, running_of(limit), now)
    return rooms


def startable(lanes: Iterable[Lane], rooms: dict[Key, int]) -> int:
    """How many of these turns may start together under all caps."""
    left, total = dict(rooms), 0
    for agent, tenant, count in sorted(lanes):
        keys = [key for key in (("agent", agent), ("tenant", tenant)) if key in left]
        start = min([count, *(left[key] for key in keys)])
        for key in keys:
            left[key] -= start
        total += start
    return total
