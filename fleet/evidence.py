"""Gathers the facts of `fleet.health.v1`: each dependency read once, bounded in time, alone in its failure.

What is remembered between readings is the time of each dependency's last success in this process, never a value.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

from django.conf import settings
from django.utils import timezone

from dispatch import selectors as dispatch_selectors
from dispatch import wiring
from dispatch.maintenance.checker import CHECK, WORKER_STUCK
from dispatch.models import ClaimGate
from fleet import goals, selectors
from fleet.health import CONTROL, GOALS, QUEUE, REGISTRY, Evidence, Fact, verdict
from fleet.reads import Reads
from fleet.schedules import schedules_neglected
from fleet.selectors import LiveWorker, TickAge

log = logging.getLogger(__name__)

T = TypeVar("T")
G = TypeVar("G")
S = TypeVar("S")


class SuccessTimes:
    """When each dependency was last read, in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: dict[str, datetime] = {}

    def succeeded(self, name: str, at: datetime) -> None:
        with self._lock:
            self._times[name] = max(at, self._times.get(name, at))

    def last(self, name: str) -> datetime | None:
        with self._lock:
            return self._times.get(name)


_successes = SuccessTimes()


NO_WORKER_FOR_AN_AGENT = "turns_without_worker"
NO_WORKER_UNREAD = "turns_without_worker_unread"
CLAIMING_PAUSED = "claiming_paused"
OVERDUE_SCHEDULES = "schedules_overdue"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading(Generic[G, S]):
    """What was read at one moment, and the verdict on it. A part that could not be read is None."""

    goals: G | None
    sessions: S | None
    gates: list[ClaimGate] | None
    workers: list[LiveWorker] | None
    depth: int | None
    evidence: Evidence


@dataclass(frozen=True, kw_only=True, slots=True)
class _Control(Generic[S]):
    """What the control store says. `findings`: labels of the leader's last check, if it looked lately."""

    sessions: S
    ticks: list[TickAge]
    findings: frozenset[str]
    gates: list[ClaimGate]
    schedules_neglected: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part(Generic[T]):
    value: T | None
    checked_at: datetime
    error: str | None = None


def gather(
    *,
    read_goals: Callable[[], G],
    read_sessions: Callable[[], S],
    tenant: selectors.Tenants = None,
    runs_of: selectors.Tenants = None,
    successes: SuccessTimes | None = None,
) -> Reading[G, S]:
    """Read the four dependencies. The callers say which goals and sessions they want, and get what came of it.

    `tenant`: whose pauses of claiming are noted, beside those that stop everybody's. `runs_of`: whose runs the workers
    are shown with.
    """
    memory = _successes if successes is None else successes
    with Reads() as reads:
        goals = _read(reads, GOALS, read_goals)
        control = _read(reads, CONTROL, lambda: _control(read_sessions, tenant))
        workers = _read(reads, REGISTRY, lambda: selectors.workers_live(runs_of=runs_of))
        live = workers.value or ()
        unserved = _read(reads, REGISTRY, lambda: selectors.turns_without_worker(live)) if live else None
        queue = _read(reads, QUEUE, lambda: (wiring.transport().depth(), dispatch_selectors.convergence_findings()))
    impairments: dict[str, tuple[str, ...]] = {}
    found = frozenset() if control.value is None else control.value.findings
    if control.value is not None and workers.value:
        impairments[CONTROL] = stale_ticks(
            control.value.ticks, alive_s=max(w.alive_s for w in workers.value), tick_s=settings.FLEETSITE.tick_s
        )
    if queue.value is not None:
        labels = {label for label, count in queue.value[1].items() if count} | found - {WORKER_STUCK}
        impairments[QUEUE] = tuple(sorted(labels))
    if WORKER_STUCK in found:
        impairments[REGISTRY] = (WORKER_STUCK,)
    # without any worker it goes without saying, and is no fault
    notes: dict[str, tuple[str, ...]] = {REGISTRY: () if unserved is None else _unserved(unserved)}
    if control.value is not None:  # a pause is somebody's wish, and no fault
        notes[CONTROL] = tuple(dict.fromkeys(f"{CLAIMING_PAUSED}:{gate.scope}" for gate in control.value.gates))
        if control.value.schedules_neglected:
            # a leader that does not come round is a stale tick; one that is refused, by a full queue say, does its work
            notes[CONTROL] += (OVERDUE_SCHEDULES,)
    facts = {}
    parts: tuple[tuple[str, _Part[object]], ...] = (
        (GOALS, _anything(goals)),
        (CONTROL, _anything(control)),
        (REGISTRY, _anything(workers)),
        (QUEUE, _anything(queue)),
    )
    for name, part in parts:
        if part.error is None:
            memory.succeeded(name, part.checked_at)
        facts[name] = Fact(
            checked_at=part.checked_at,
            last_success_at=memory.last(name),
            error=part.error,
            impairments=impairments.get(name, ()),
            notes=notes.get(name, ()),
        )
    return Reading(
        goals=goals.value,
        sessions=control.value.sessions if control.value is not None else None,
        gates=control.value.gates if control.value is not None else None,
        workers=workers.value,
        depth=queue.value[0] if queue.value is not None else None,
        evidence=verdict(facts, now=timezone.now()),
    )


def _control(read_sessions: Callable[[], S], tenant: selectors.Tenants) -> _Control[S]:
    sessions, ticks = read_sessions(), selectors.tick_ages()
    checked = said_lately(ticks, CHECK, tick_s=settings.FLEETSITE.tick_s)
    return _Control(
        sessions=sessions,
        ticks=ticks,
        findings=selectors.check_findings() if checked and any(tick.findings for tick in ticks) else frozenset(),
        gates=selectors.gates_shut(tenant=tenant),
        schedules_neglected=schedules_neglected(),
    )


def gather_ready() -> Reading[object, object]:
    """The same four reads without the aggregates, for callers that ask for the verdict alone."""
    return gather(
        read_goals=lambda: goals.goal_counts(tenant=None),
        read_sessions=selectors.sessions_readable,
    )


def stale_ticks(ticks: Sequence[TickAge], *, alive_s: float, tick_s: float) -> tuple[str, ...]:
    """Labels of periodic duties that nobody has done for three periods although a worker has lived that long."""
    if not ticks:
        return ("ticks_never_ran",) if alive_s > _patience(tick_s) else ()
    labels = []
    for tick in ticks:
        patience = _patience(max(tick_s, tick.period_s))
        late = tick.overdue_s > patience or tick.undone_s is None or tick.undone_s > patience
        if late and alive_s > patience:
            labels.append(f"stale_tick:{tick.name}")
    return tuple(labels)


def said_lately(ticks: Sequence[TickAge], name: str, *, tick_s: float) -> bool:
    """Whether what this duty last wrote down still says something of now: with no worker nobody has looked since."""
    return any(
        tick.undone_s is not None and tick.undone_s <= _patience(max(tick_s, tick.period_s))
        for tick in ticks
        if tick.name == name
    )


def _patience(period_s: float) -> float:
    return max(3 * period_s, period_s + 10)


def _unserved(part: _Part[int]) -> tuple[str, ...]:
    """Whether turns wait for a pool that is not there; that nobody could look is said, and is no "none"."""
    if part.error is not None:
        return (NO_WORKER_UNREAD,)
    return (NO_WORKER_FOR_AN_AGENT,) if part.value else ()


def _read(reads: Reads, name: str, read: Callable[[], T]) -> _Part[T]:
    """Any failure counts: what is behind a dependency may raise what it likes, and must not hide the others."""
    try:
        if name != QUEUE:
            wiring.refuse_vanished_store()
        value = reads.read(read)
    except Exception as error:
        log.warning("fleet evidence not read", extra={"dependency": name, "error": type(error).__name__})
        return _Part(value=None, checked_at=timezone.now(), error=type(error).__name__)
    return _Part(value=value, checked_at=timezone.now())


def _anything(part: _Part[T]) -> _Part[object]:
    return _Part(value=part.value, checked_at=part.checked_at, error=part.error)
