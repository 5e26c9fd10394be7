"""Which due time runs now, and which have been missed. Pure: the caller brings the times.

A due time that came at most `grace` ago is late, and runs: a leader that died leaves its schedules for so long. With an
older one among them the fleet was away, and the schedule's own policy says what becomes of what it missed:

    skip    what is older than the grace is left out
    once    the newest runs, for all of them
    all     each runs, oldest first, as far back as MOST of them
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from dispatch.schedules.recurrence import Recurrence

MOST = 100  # due times that are made up for, or counted as missed, at once
POLICIES = ("skip", "once", "all")


@dataclass(frozen=True, kw_only=True, slots=True)
class Due:
    """A due time, and when it runs: later by its jitter."""

    at: datetime
    run_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """`run`: the due time that runs now, None: none does. `through`: the last one that this settles."""

    run: Due | None
    missed: int
    through: datetime


def choose(pending: Sequence[Due], *, policy: str, now: datetime, grace: timedelta) -> Choice:
    """Decide on due times that have come, oldest first, at least one."""
    first, last = pending[0], pending[-1]
    if policy == "all" or now - first.run_at <= grace:
        return Choice(run=first, missed=0, through=first.at)
    if policy == "once":
        return Choice(run=last, missed=len(pending) - 1, through=last.at)
    fresh = [due for due in pending if now - due.run_at <= grace]
    run = fresh[0] if fresh else None
    return Choice(run=run, missed=len(pending) - len(fresh), through=run.at if run else last.at)


@dataclass(frozen=True, kw_only=True, slots=True)
class Timetable:
    """The due times of one schedule, each moved by a delay of up to `jitter_s` that is always the same for it.

    `key` tells schedules apart. A delay ends before the following due time.
    """

    recurrence: Recurrence
    jitter_s: float
    key: str

    def after(self, moment: datetime) -> Due:
        """The first due time later than `moment`."""
        return self._due(self.recurrence.after(moment))

    def upcoming(self, moment: datetime, count: int) -> list[Due]:
        return [self._due(at) for at in self.recurrence.upcoming(moment, count)]

    def come(self, *, since: datetime, now: datetime) -> tuple[list[Due], int]:
        """The newest MOST due times since `since` (included) whose time to run has come, and how many came before.

        That count goes no further than MOST. Nothing has come when the zone's rules have changed since.
        """
        newest = self.recurrence.newest(since=since, until=now, limit=MOST)
        pending = [self._due(at) for at in newest]
        if pending and pending[-1].run_at > now:
            pending.pop()
        if not newest or newest[0] == since:
            return pending, 0
        before = self.recurrence.newest(since=since, until=newest[0] - timedelta(microseconds=1), limit=MOST)
        return pending, len(before)

    def _due(self, at: datetime) -> Due:
        if self.jitter_s <= 0:
            return Due(at=at, run_at=at)
        digest = hashlib.sha256(f"{self.key}\x00{at.timestamp():.0f}".encode()).digest()
        share = int.from_bytes(digest[:8], "big") / 2**64
        gap = self.recurrence.after(at) - at
        return Due(at=at, run_at=at + share * min(timedelta(seconds=self.jitter_s), gap))
