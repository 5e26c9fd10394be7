"""How many workers to want next: a target, and what keeps the answer from swinging. Pure: no clock, no database."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Reason = Literal[
    "idle",
    "backlog",
    "at_min",
    "at_max",
    "within_deadband",
    "stabilizing",
    "cooling_down",
    "stepping",
    "evidence_not_healthy",
]
KEPT = 20  # past answers of one window


@dataclass(frozen=True, kw_only=True, slots=True)
class Signals:
    """What the work says. `current`: live slots in workers of the policy's capacity."""

    claimable: int
    running: int
    oldest_ready_s: float | None
    current: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """`target`: turns for each slot. `max_wait_s`, `step_up`, `step_down`: None for without."""

    min: int = 0
    max: int = 100
    capacity: int = 2
    target: float = 1.0
    max_wait_s: float | None = None
    step_up: int | None = None
    step_down: int | None = None
    deadband: float = 0.1
    cooldown_s: float = 0.0
    stabilization_s: float = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Memory:
    """The last answer, when it changed, and what the work asked for in the window: (unix time, workers)."""

    desired: int
    changed_at: float
    asked: tuple[tuple[float, int], ...] = ()


def decide(signals: Signals, policy: Policy, memory: Memory | None, now: float) -> tuple[int, Reason, Memory]:
    """The wanted workers, why, and what to remember. Without a memory it begins at what is there."""
    before = memory or Memory(desired=signals.current, changed_at=-math.inf)
    wanted = wanted_workers(signals, policy)
    bounded = min(max(wanted, policy.min), policy.max)
    asked = _window(before.asked, bounded, policy.stabilization_s, now)
    reason: Reason = "backlog" if wanted else "idle"
    if bounded != wanted:
        reason = "at_max" if bounded < wanted else "at_min"
    desired = bounded
    if desired < before.desired and (peak := max(n for _, n in asked)) > desired:
        desired, reason = min(peak, before.desired), "stabilizing"
    if desired != before.desired:
        held = _held(desired, before, policy, now)
        if held is not None:
            desired, reason = held
    desired = min(max(desired, policy.min), policy.max)
    changed_at = before.changed_at if memory is not None and desired == before.desired else now
    return desired, reason, Memory(desired=desired, changed_at=changed_at, asked=asked)


def wanted_workers(signals: Signals, policy: Policy) -> int:
    """What the work asks for now. A session counts once, however long its queue.

    Turns that wait too long ask for more workers than the target does, up to a slot for each turn.
    """
    turns = signals.claimable + signals.running
    wanted = math.ceil(turns / (policy.capacity * policy.target))
    oldest = signals.oldest_ready_s or 0.0
    if policy.max_wait_s is not None and signals.claimable and oldest > policy.max_wait_s:
        late = math.ceil(max(1, signals.current) * min(2.0, oldest / policy.max_wait_s))
        wanted = max(wanted, min(late, math.ceil(turns / policy.capacity)))
    return wanted


def _held(desired: int, before: Memory, policy: Policy, now: float) -> tuple[int, Reason] | None:
    """A smaller change, or none. From nothing, and to nothing, no deadband holds: half a worker is none."""
    change = abs(desired - before.desired)
    if desired and before.desired and change <= policy.deadband * before.desired:
        return before.desired, "within_deadband"
    if now - before.changed_at < policy.cooldown_s:
        return before.desired, "cooling_down"
    if policy.step_up is not None and desired > before.desired + policy.step_up:
        return before.desired + policy.step_up, "stepping"
    if policy.step_down is not None and desired < before.desired - policy.step_down:
        return before.desired - policy.step_down, "stepping"
    return None


def _window(
    asked: tuple[tuple[float, int], ...], now_asked: int, length_s: float, now: float
) -> tuple[tuple[float, int], ...]:
    """What was asked for in the last `length_s`: the highest of each twentieth part of it, and what is asked now."""
    part = max(length_s / KEPT, 0.001)  # no shorter: a window of microseconds would have parts without end
    peaks: dict[int, tuple[float, int]] = {}
    for at, workers in (*asked, (now, now_asked)):
        if at < now - length_s:
            continue
        place = int(at // part)
        known = peaks.get(place)
        # of equal ones the later: it holds longer
        if known is None or workers >= known[1]:
            peaks[place] = (at, workers)
    return tuple(sorted(peaks.values()))
