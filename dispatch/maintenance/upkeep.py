"""Which duties a worker process has."""

from __future__ import annotations

from datetime import timedelta

from dispatch import wiring
from dispatch.authority import WorkAuthority
from dispatch.clock import store_now
from dispatch.maintenance.aged import aged_tables, days
from dispatch.maintenance.checker import CHECK, Checker
from dispatch.maintenance.leadership import SessionLock
from dispatch.maintenance.pruner import Pruner
from dispatch.maintenance.retention import Policy
from dispatch.maintenance.schedules import Materializer
from dispatch.maintenance.ticks import Duty, Ticks
from dispatch.maintenance.workdirs import Workdirs
from dispatch.models import DispatchWorker
from dispatch.webhooks.outbox import News
from dispatch.webhooks.sender import Senders
from dispatch.worker_registry import product_version

KEEP_LOST_WORKERS = timedelta(hours=24)
REGISTRY_PERIOD_S = 300.0
REST = 9.0  # the repair of a long queue runs beside turns, and leaves them nine tenths of the process
SCHEDULES_TICKS = 3  # as long as a dead leader may go unfollowed


def prune_registry() -> int:
    """Forget consumers that have been silent for a day."""
    gone, _ = DispatchWorker.objects.filter(last_heartbeat__lt=store_now() - KEEP_LOST_WORKERS).delete()
    return gone


def make_senders() -> Senders:
    config = wiring.config()
    return Senders(
        timeout_s=config.webhook_timeout_s,
        most_tries=config.webhook_tries,
        allow_private=config.webhook_allow_private,
        version=product_version(),
    )


def make_ticks(
    authority: WorkAuthority, *, holder: str, tick_s: float, stale_s: float, lock: SessionLock | None = None
) -> Ticks:
    transitions = authority.transitions
    checker = Checker(authority, tick_s=tick_s, stale_s=stale_s)
    schedules = Materializer(leads=lambda: ticks.leader.holds_term(), tick_s=tick_s)
    news, senders = News(), make_senders()
    ticks = Ticks(
        quick=[
            transitions.due,
            transitions.expire,
            transitions.questions,
            lambda: schedules.run_once() if ticks.leader.term else 0,
            lambda: news.look() if ticks.leader.term else 0,
            senders.kick,
            Workdirs(wiring.workdirs(), keep=days(wiring.config().retention_sessions_days)).run_once,
        ],
        duties=[
            Duty(name="rescue", run=transitions.rescue, period_s=tick_s),
            Duty(name="release", run=transitions.release_waiting, period_s=tick_s),
            Duty(name="kills", run=transitions.finish_kills, period_s=tick_s),
            Duty(name="envelopes", run=authority.republish, period_s=tick_s),
            Duty(name="republish", run=lambda: authority.repair(rest=REST), period_s=tick_s, heavy=True),
            Duty(name=CHECK, run=checker.note, period_s=tick_s, leader_only=True, heavy=True),
            Duty(name="registry", run=prune_registry, period_s=REGISTRY_PERIOD_S, leader_only=True),
            # what is due is found by the quick look; this round tells the evidence that somebody looks
            Duty(name="schedules", run=schedules.run_once, period_s=SCHEDULES_TICKS * tick_s, leader_only=True),
        ],
        holder=holder,
        tick_s=tick_s,
        lock=lock,
    )
    config = wiring.config()
    pruner = Pruner(authority, policy=Policy.of(config), tables=aged_tables(config), allowed=ticks.leader.holds_term)
    ticks.add(Duty(name="retention", run=pruner.run_round, period_s=tick_s, leader_only=True))
    return ticks
