"""One leader for what must have one: a row per role, taken over for a new term after two silent ticks."""

from __future__ import annotations

from datetime import timedelta

from dispatch.clock import store_now
from dispatch.models import Leadership

SILENT_TICKS = 2


class Leader:
    """Holds a role for this process; what it writes is guarded by its term and harmless when two run."""

    def __init__(self, role: str, *, holder: str, tick_s: float) -> None:
        self.role = role
        self.holder = holder
        self.term = 0
        self._tick_s = tick_s

    def lead(self) -> bool:
        """Beat, or take over from a silent holder; True while this process leads."""
        now = store_now()
        mine = Leadership.objects.filter(role=self.role, holder=self.holder, term=self.term)
        if self.term and mine.update(beat_at=now):
            return True
        self.term = 0
        row = Leadership.objects.filter(role=self.role).first()
        if row is None:
            row, made = Leadership.objects.get_or_create(
                role=self.role, defaults={"holder": self.holder, "term": 1, "beat_at": now}
            )
            if made:
                self.term = 1
                return True
        if row.beat_at > now - timedelta(seconds=SILENT_TICKS * self._tick_s):
            return False
        # guarded by the term that we saw: of two that try, one wins
        taken = Leadership.objects.filter(role=self.role, term=row.term, beat_at=row.beat_at).update(
            holder=self.holder, term=row.term + 1, beat_at=now
        )
        if taken:
            self.term = row.term + 1
        return bool(taken)

    def resign(self) -> None:
        """Let another take over at once."""
        if self.term:
            Leadership.objects.filter(role=self.role, holder=self.holder, term=self.term).update(
                beat_at=store_now() - timedelta(seconds=(SILENT_TICKS + 1) * self._tick_s)
            )
            self.term = 0
