"""When to settle: turns that end together share a commit, with a bounded delay."""

from __future__ import annotations

import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from dispatch.agents.registry import RegisteredAgent
from dispatch.agents.runner import TurnRun
from dispatch.outcomes import LeaseGone, Outcome, settlement_for
from dispatch.ports import Lease, Settlement

GROUP_DELAY_S = 0.005
SOON_S = 0.02


@dataclass(eq=False, slots=True)
class Slot:
    """One running turn. `abandoned`: settled without it, its thread still holds the slot."""

    run: TurnRun
    agent: RegisteredAgent
    claimed_at: float
    told_at: float | None = None
    abandoned: bool = False

    @property
    def lease(self) -> Lease:
        return self.run.lease


class Finished:
    """The runs that have ended and are not settled yet; run threads add, the consumer's loop takes.

    A commit costs nearly the same for one turn as for many. So while turns are shorter than the delay, those that began
    together are awaited together; of longer ones half the capacity is enough.
    """

    def __init__(self, capacity: int) -> None:
        self._enough = max(1, capacity // 2)
        self._run_s = math.inf  # how long turns take, of late
        self._changed = threading.Condition()
        self._ended: deque[tuple[Slot, Outcome]] = deque()
        self._awaited = self._enough
        self._first_at = 0.0
        self._woken = False

    def add(self, slot: Slot, outcome: Outcome) -> None:
        run_s = slot.run.run_s
        with self._changed:
            if run_s is not None:
                self._run_s = run_s if self._run_s == math.inf else self._run_s + (run_s - self._run_s) / 8
            if not self._ended:
                self._first_at = time.monotonic()
            self._ended.append((slot, outcome))
            if len(self._ended) in (1, self._awaited):  # the first one starts the delay, the others need not wake it
                self._changed.notify()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify()

    def take(
        self, *, in_flight: int, timeout_s: float, fresh: int = 0, idle: Callable[[], None] = lambda: None
    ) -> list[tuple[Slot, Outcome]]:
        """Wait for an end or a wake-up; then settle at once when enough have ended, else 5 ms after the first.

        `fresh`: how many of those in flight began in the last step. `idle` is called when nothing comes soon.
        """
        if not self._wait(min(timeout_s, SOON_S)) and timeout_s > 0:
            idle()
            self._wait(timeout_s - SOON_S)
        with self._changed:
            self._woken = False
            self._awaited = fresh if fresh and self._run_s < GROUP_DELAY_S else min(self._enough, in_flight)
            while self._ended and len(self._ended) < self._awaited:
                left = self._first_at + GROUP_DELAY_S - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            taken = list(self._ended)
            self._ended.clear()
        return taken

    def _wait(self, timeout_s: float) -> bool:
        """Whether something has ended, or woke us, before the time is over."""
        with self._changed:
            if not self._ended and not self._woken and timeout_s > 0:
                self._changed.wait(timeout_s)
            return bool(self._ended) or self._woken


def settlement_of(slot: Slot, outcome: Outcome) -> Settlement | None:
    """What to write for a run; None when its lease is gone and nothing may be written."""
    if isinstance(outcome, LeaseGone):
        return None
    return settlement_for(slot.lease, outcome, slot.agent.policy, random.random())
