"""How much room a limit leaves: what the claim keeps to, and what explain and autoscaling say of it."""

from __future__ import annotations

from datetime import datetime, timedelta

from dispatch import states
from dispatch.models import ClaimLimit, WorkItem
from dispatch.wording import span


def running_of(limit: ClaimLimit) -> int:
    """Turns under a limit that hold a lease; counted in the index that refuses a session a second one."""
    if limit.max_running is None:
        return 0
    live = WorkItem.objects.filter(status__in=sorted(states.LIVE))
    return live.filter(**{"agent_name" if limit.scope == "agent" else "tenant": limit.name}).count()


def room_of(limit: ClaimLimit, running: int, now: datetime) -> int:
    """How many turns may start now."""
    room = []
    if limit.max_running is not None:
        room.append(limit.max_running - running)
    if limit.rate_per_s is not None:
        room.append(int(limit.tokens_at(now)))
    return max(0, min(room))


def limit_words(limit: ClaimLimit, now: datetime) -> str | None:
    """Why a limit lets nothing start now; None when it does."""
    running = running_of(limit)
    if room_of(limit, running, now) > 0:
        return None
    if limit.max_running is not None and running >= limit.max_running:
        return f"{limit.scope} {limit.name} runs {running} turns, and may run {limit.max_running} at once"
    wait = timedelta(seconds=max(0.0, 1 - limit.tokens_at(now)) / (limit.rate_per_s or 1))
    return f"{limit.scope} {limit.name} may start {limit.rate_per_s:g} turns a second, the next in {span(wait)}"
