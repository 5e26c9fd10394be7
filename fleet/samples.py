"""Samples of the fleet: one row a minute, written by the leader, from which charts are drawn."""

from __future__ import annotations

from datetime import datetime, timedelta

from dispatch.clock import store_now
from dispatch.gates import shut_by
from dispatch.maintenance.ticks import Duty, register_duty
from fleet import selectors
from fleet.evidence import gather_ready
from fleet.latency import latency
from fleet.models import FleetSample
from fleet.reads import Reads

LOOK_S = 20.0  # oftener than a minute: a round that comes late must not skip one
FULL = timedelta(hours=48)  # after which one row in ten minutes is kept
LATELY = timedelta(minutes=1)  # the minute before, which is whole
KEPT_MINUTES = range(0, 60, 10)

UNREAD = "fleet not sampled"


def register() -> None:
    register_duty(lambda tick_s: Duty(name="samples", run=sample_fleet, period_s=LOOK_S, leader_only=True))


def sample_fleet() -> int:
    """Write this minute's row unless it is there, and thin the old ones once an hour; answer the rows written."""
    minute = store_now().replace(second=0, microsecond=0)
    if FleetSample.objects.filter(at=minute).exists():
        return 0
    FleetSample.objects.bulk_create([read_sample(minute)], ignore_conflicts=True)
    if minute.minute == 0:
        thin(minute)
    return 1


def thin(now: datetime) -> None:
    FleetSample.objects.filter(at__lt=now - FULL).exclude(at__minute__in=KEPT_MINUTES).delete()


def read_sample(minute: datetime) -> FleetSample:
    """Each number read for itself: one that fails is null, and fails no other."""
    reading = gather_ready()
    gates = None if reading.gates is None else shut_by(reading.gates)
    with Reads() as reads:
        ready = reads.attempt("ready", lambda: selectors.ready_turns(tenant=None, gates=gates), UNREAD)
        running = reads.attempt("running", lambda: selectors.running_count(tenant=None), UNREAD)
        totals = reads.attempt("totals", selectors.turn_totals, UNREAD)
        lately = reads.attempt("latency", lambda: latency(since=minute - LATELY, before=minute), UNREAD)
    workers = reading.workers
    return FleetSample(
        at=minute,
        depth=reading.depth,
        ready=None if ready is None else ready.count,
        oldest_ready_s=None if ready is None else ready.oldest_s or 0.0,
        running=running,
        workers=None if workers is None else len(workers),
        slots=None if workers is None else sum(worker.capacity for worker in workers),
        completed_total=None if totals is None else totals["completed"],
        failed_total=None if totals is None else totals["failed"],
        wait_p50_s=None if lately is None else lately.wait_p50_s,
        wait_p95_s=None if lately is None else lately.wait_p95_s,
        run_p95_s=None if lately is None else lately.run_p95_s,
        evidence=reading.evidence.status,
    )


def samples_since(start: datetime) -> list[FleetSample]:
    """Oldest first; at most some four thousand of them in a week."""
    return list(FleetSample.objects.filter(at__gte=start).order_by("at"))
