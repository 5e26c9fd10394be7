"""The ticks: what any worker process may do, one of them per period, and what only the leader does."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.db import IntegrityError
from django.db.models import F, Q

from dispatch.clock import store_now
from dispatch.maintenance.leadership import Leader, SessionLock
from dispatch.models import Tick

log = logging.getLogger("dispatch.maintenance")

LOOK_S = 0.5
REPAIR_SHARE = 20  # a heavy duty takes at most one part in so many of the time

Run = Callable[[], int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Duty:
    """A named piece of upkeep: `run` does one round and answers how many things it moved.

    `heavy`: a round goes over the whole queue, however long that is, and may come less often for it.
    """

    name: str
    run: Run
    period_s: float
    leader_only: bool = False
    heavy: bool = False


_extra: list[Callable[[float], Duty]] = []


def register_duty(make: Callable[[float], Duty]) -> None:
    """Let another app add a duty; `make` takes the tick period in seconds."""
    _extra.append(make)


class Ticks:
    """Runs duties when they are due. `look` is called in a loop and answers how long to pause.

    `quick` rounds cost one look into the queue when there is nothing to do, and so need no turn-taking: two processes
    that both run one move the same things by guarded writes.
    """

    def __init__(
        self, *, quick: list[Run], duties: list[Duty], holder: str, tick_s: float, lock: SessionLock | None = None
    ) -> None:
        self._quick = quick
        self._duties = duties + [make(tick_s) for make in _extra]
        self.leader = Leader("ticks", holder=holder, tick_s=tick_s, lock=lock)
        self._next_lead = 0.0
        self._tick_s = tick_s
        self._not_before: dict[str, float] = {}

    def add(self, duty: Duty) -> None:
        """A duty that needs to know this leader."""
        self._duties.append(duty)

    def names(self) -> list[str]:
        return [duty.name for duty in self._duties]

    def look(self) -> float:
        for run in self._quick:
            run()
        if time.monotonic() >= self._next_lead:
            self._next_lead = time.monotonic() + self._tick_s
            self.leader.lead()
        for duty in self._duties:
            if time.monotonic() >= self._not_before.get(duty.name, 0.0) and (self.leader.term or not duty.leader_only):
                self._turn(duty)
        return LOOK_S

    def _turn(self, duty: Duty) -> None:
        self._not_before[duty.name] = time.monotonic() + min(duty.period_s, self._tick_s) / 2
        if not self._take(duty):
            return
        began = time.monotonic()
        try:
            count = duty.run()
        except Exception as error:
            Tick.objects.filter(name=duty.name).update(last_error=type(error).__name__)
            log.exception("tick failed", extra={"tick": duty.name})
            raise
        took = time.monotonic() - began
        pause = max(duty.period_s, took * REPAIR_SHARE) if duty.heavy else duty.period_s
        self._not_before[duty.name] = time.monotonic() + max(0.0, pause - took)
        Tick.objects.filter(name=duty.name).update(last_success_at=store_now(), last_error="", last_count=count)
        if count:
            log.info("tick moved", extra={"tick": duty.name, "count": count})

    @staticmethod
    def _take(duty: Duty) -> bool:
        """A guarded update of the tick's row: one process per period gets it.

        One that was taken and has not succeeded within half its period goes to the next who asks: its process may have
        died with it. A heavy one may simply take long.
        """
        now = store_now()
        following = now + timedelta(seconds=duty.period_s)
        due = Q(due_at__lte=now)
        if not duty.heavy:
            unfinished = Q(last_success_at__isnull=True) | Q(last_success_at__lt=F("last_started_at"))
            due |= unfinished & Q(last_started_at__lte=now - timedelta(seconds=duty.period_s / 2))
        if Tick.objects.filter(due, name=duty.name).update(due_at=following, last_started_at=now):
            return True
        if Tick.objects.filter(name=duty.name).exists():
            return False
        try:
            Tick.objects.create(name=duty.name, due_at=following, last_started_at=now)
        except IntegrityError:
            return False  # another process made it a moment ago
        return True

    def close(self) -> None:
        self.leader.resign()
