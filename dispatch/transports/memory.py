"""A queue in this process's memory: for inline work, tests of user code, and a queue rebuilt from the state at need."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dispatch.errors import QueueFull
from dispatch.ports import Capabilities, Delivery, Gates, QueueRow, Serves
from dispatch.states import QueueState
from dispatch.transports import ring


class MemoryTransport:
    """Rows in a dict; one lock for all, held over a whole transaction."""

    name = "memory"
    backend_name = "MemoryQueueBackend"
    envelopes = None
    capabilities = Capabilities(joins_state_transaction=False, exact_admission=True, durable=False, cross_host=False)

    def __init__(self, *, rebuilding: bool = True, standing_in: bool = False) -> None:
        # one that stands in lives inside one caller's transaction and ends with it
        self.capabilities = replace(self.capabilities, joins_state_transaction=standing_in)
        self._rows: dict[int, QueueRow] = {}
        self._lock = threading.RLock()
        self._depth = 0
        self._rebuilding = rebuilding
        self._woken = threading.Condition()
        self._wakes = 0

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._lock:
            if self._depth:
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1
                return
            before, rebuilding = dict(self._rows), self._rebuilding
            self._depth = 1
            try:
                yield
            except BaseException:
                self._rows, self._rebuilding = before, rebuilding
                raise
            finally:
                self._depth = 0

    def publish(self, rows: Sequence[QueueRow], *, bound: int | None = None) -> None:
        with self._lock:
            if bound is not None and len(rows) > self.room(bound):
                raise QueueFull
            self._rows.update({row.item_id: row for row in rows})

    def promote(self, moves: Sequence[tuple[int, int, float | None, float | None]]) -> None:
        with self._lock:
            for item_id, state, due_at, rank in moves:
                if (row := self._rows.get(item_id)) is not None:
                    self._rows[item_id] = replace(
                        row, state=state, due_at=due_at, rank=row.rank if rank is None else rank, published_at=None
                    )

    def receive(self, *, want: int, serves: Serves, gates: Gates, cursor: str, now: float) -> list[Delivery]:
        with self._lock:
            picked = ring.pick(_Index(self._rows, now), want=want, serves=serves, gates=gates, cursor=cursor)
            for item_id, _ in picked:
                self._rows[item_id] = replace(self._rows[item_id], state=QueueState.CLAIMED, published_at=None)
        return [Delivery(item_id=item_id, tenant=tenant) for item_id, tenant in picked]

    def take(self, item_ids: Sequence[int]) -> list[int]:
        with self._lock:
            taken = [i for i in item_ids if i in self._rows and self._rows[i].state == QueueState.CLAIMABLE]
            for item_id in taken:
                self._rows[item_id] = replace(self._rows[item_id], state=QueueState.CLAIMED, published_at=None)
        return taken

    def published(self, item_ids: Sequence[int], *, at: float) -> None:
        with self._lock:
            for item_id in item_ids:
                row = self._rows.get(item_id)
                if row is not None and row.state == QueueState.CLAIMABLE:
                    self._rows[item_id] = replace(row, published_at=at)

    def unpublished(self, *, before: float, limit: int) -> list[QueueRow]:
        with self._lock:
            rows = [r for r in self._rows.values() if r.state == QueueState.CLAIMABLE]
        return [r for r in rows if r.published_at is None or r.published_at < before][:limit]

    def ack(self, item_ids: Sequence[int]) -> None:
        with self._lock:
            for item_id in item_ids:
                self._rows.pop(item_id, None)

    def release(self, item_ids: Sequence[int], *, delay_s: float = 0.0) -> None:
        due = time.time() + delay_s if delay_s > 0 else None
        state = QueueState.DUE_LATER if due else QueueState.CLAIMABLE
        with self._lock:
            for item_id in item_ids:
                row = self._rows.get(item_id)
                if row is not None and row.state == QueueState.CLAIMED:
                    self._rows[item_id] = replace(row, state=state, due_at=due)

    def extend(self, item_ids: Sequence[int]) -> None:
        """Nothing to do: a claimed row of this process stays claimed as long as the process lives."""

    def rows(self, item_ids: Sequence[int]) -> dict[int, QueueRow]:
        with self._lock:
            return {i: self._rows[i] for i in item_ids if i in self._rows}

    def due(self, *, now: float, limit: int) -> list[int]:
        with self._lock:
            rows = [r for r in self._rows.values() if r.state == QueueState.DUE_LATER and (r.due_at or 0) <= now]
        return [r.item_id for r in sorted(rows, key=lambda r: r.due_at or 0)[:limit]]

    def expired(self, *, now: float, limit: int) -> list[int]:
        with self._lock:
            rows = [
                r
                for r in self._rows.values()
                if r.state != QueueState.CLAIMED and r.deadline is not None and r.deadline <= now
            ]
        return [r.item_id for r in sorted(rows, key=lambda r: r.deadline or 0)[:limit]]

    def page(self, *, after: int, limit: int) -> list[QueueRow]:
        with self._lock:
            return [self._rows[i] for i in sorted(i for i in self._rows if i > after)[:limit]]

    def depth(self) -> int:
        with self._lock:
            return sum(row.state != QueueState.SUSPENDED for row in self._rows.values())

    def room(self, bound: int) -> int:
        return max(0, bound - self.depth())

    def make_room(self, count: int, bound: int) -> None:
        if self.room(bound) < 1:
            raise QueueFull

    @property
    def rebuilding(self) -> bool:
        return self._rebuilding

    def rebuilt(self) -> None:
        self._rebuilding = False

    def wait(self, timeout_s: float) -> bool:
        with self._woken:
            seen = self._wakes
            return self._woken.wait_for(lambda: self._wakes != seen, timeout_s)

    def wake(self) -> None:
        with self._woken:
            self._wakes += 1
            self._woken.notify_all()

    def listener(self) -> MemoryTransport:
        return self

    def drain(self) -> None:
        """Nothing is left over between waits."""

    def close(self) -> None:
        """Nothing to give back."""


class _Index:
    """The claim index over a dict: a scan, which is fine for what a test or one process holds."""

    def __init__(self, rows: dict[int, QueueRow], now: float) -> None:
        self._claimable = [r for r in rows.values() if r.state == QueueState.CLAIMABLE]
        self._now = now

    def _lane(self, lane: ring.Lane) -> list[QueueRow]:
        return [r for r in self._claimable if (r.agent_name, r.kind) == lane]

    def has_rows(self, lane: ring.Lane) -> bool:
        return bool(self._lane(lane))

    def next_tenant(self, lane: ring.Lane, after: str) -> str | None:
        return min((r.tenant for r in self._lane(lane) if r.tenant > after), default=None)

    def best(self, lane: ring.Lane, tenant: str, limit: int) -> list[ring.Candidate]:
        return sorted(
            (r.rank, r.item_id)
            for r in self._lane(lane)
            if r.tenant == tenant and (r.deadline is None or r.deadline > self._now)
        )[:limit]
