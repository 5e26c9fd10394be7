"""One leader for what must have one: a row per role, taken over for a new term when the leader is dead or silent."""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol

from dispatch.clock import store_now
from dispatch.models import Leadership

SILENT_TICKS = 2


class SessionLock(Protocol):
    """A lock for each term that its holder's death frees at once."""

    def hold(self, term: int) -> bool:
        """Take it, or say whether it is still held; False when another has it or it cannot be told."""
        ...

    def is_free(self, term: int) -> bool:
        """True only when nobody has it."""
        ...

    def free(self) -> None: ...


class Leader:
    """Holds a role for this process; what it writes is guarded by its term and harmless when two run.

    With a lock the leader of a term holds that term's lock before its row says so: whoever finds the lock free takes
    over at once. Without one, and when the leader is only stopped, two silent ticks decide.
    """

    def __init__(self, role: str, *, holder: str, tick_s: float, lock: SessionLock | None = None) -> None:
        self.role = role
        self.holder = holder
        self.term = 0
        self._tick_s = tick_s
        self._lock = lock

    def lead(self) -> bool:
        """Beat, or take over from a dead or silent holder; True while this process leads."""
        now = store_now()
        mine = Leadership.objects.filter(role=self.role, holder=self.holder, term=self.term)
        if self.term and mine.update(beat_at=now):
            if self._lock is not None:
                self._lock.hold(self.term)  # its session may have been ended under us
            return True
        if self.term:
            self._step_down()
        row = Leadership.objects.filter(role=self.role).first()
        if row is None:
            return self._take_first()
        silent = row.beat_at <= now - timedelta(seconds=SILENT_TICKS * self._tick_s)
        return self._take_over(row, silent=silent)

    def holds_term(self) -> bool:
        """Whether the term is still ours, to the end of the caller's transaction: a take-over waits for that."""
        mine = Leadership.objects.filter(role=self.role, holder=self.holder, term=self.term)
        return bool(self.term and mine.select_for_update(no_key=True).values_list("pk", flat=True).first())

    def resign(self) -> None:
        """Let another take over at once."""
        if self.term:
            Leadership.objects.filter(role=self.role, holder=self.holder, term=self.term).update(
                beat_at=store_now() - timedelta(seconds=(SILENT_TICKS + 1) * self._tick_s)
            )
        self._step_down()

    def _take_first(self) -> bool:
        locked = self._lock is None or self._lock.hold(1)
        _, made = Leadership.objects.get_or_create(
            role=self.role, defaults={"holder": self.holder, "term": 1, "beat_at": store_now()}
        )
        if made:
            self.term = 1
        elif locked:
            self._step_down()
        return made

    def _take_over(self, row: Leadership, *, silent: bool) -> bool:
        freed = self._lock is not None and self._lock.is_free(row.term)
        if not (silent or freed):
            return False
        if self._lock is not None and not self._lock.hold(row.term + 1) and not silent:
            return False  # another is about to take over
        # guarded by the term that we saw, and by its silence if that is all we have: of two that try, one wins
        seen = Leadership.objects.filter(role=self.role, term=row.term)
        if not freed:
            seen = seen.filter(beat_at=row.beat_at)
        if seen.update(holder=self.holder, term=row.term + 1, beat_at=store_now()):
            self.term = row.term + 1
            return True
        self._step_down()
        return False

    def _step_down(self) -> None:
        self.term = 0
        if self._lock is not None:
            self._lock.free()
