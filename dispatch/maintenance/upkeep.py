"""Which duties a worker process has."""

from __future__ import annotations

from datetime import timedelta

from dispatch.authority import WorkAuthority
from dispatch.clock import store_now
from dispatch.maintenance.leadership import SessionLock
from dispatch.maintenance.ticks import Duty, Ticks
from dispatch.models import DispatchWorker

KEEP_LOST_WORKERS = timedelta(hours=24)
REGISTRY_PERIOD_S = 300.0


def prune_registry() -> int:
    """Forget consumers that have been silent for a day."""
    gone, _ = DispatchWorker.objects.filter(last_heartbeat__lt=store_now() - KEEP_LOST_WORKERS).delete()
    return gone


def make_ticks(authority: WorkAuthority, *, holder: str, tick_s: float, lock: SessionLock | None = None) -> Ticks:
    transitions = authority.transitions
    return Ticks(
        quick=[transitions.due, transitions.expire],
        duties=[
            Duty(name="rescue", run=transitions.rescue, period_s=tick_s),
            Duty(name="release", run=transitions.release_waiting, period_s=tick_s),
            Duty(name="kills", run=transitions.finish_kills, period_s=tick_s),
            Duty(name="republish", run=authority.repair, period_s=tick_s, heavy=True),
            Duty(name="envelopes", run=authority.republish, period_s=tick_s),
            Duty(name="registry", run=prune_registry, period_s=REGISTRY_PERIOD_S, leader_only=True),
        ],
        holder=holder,
        tick_s=tick_s,
        lock=lock,
    )
