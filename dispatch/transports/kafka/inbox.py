"""The deliveries in hand of one process: the poll thread adds them, the claim loops take, hold and ack them."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Collection, Sequence
from itertools import count

from dispatch.ports import Fence, Message
from dispatch.states import AGING_STEP_S, PRIORITIES

SOON_S = (0.005, 0.5)  # until what nobody could judge is offered again: each time in a row twice as long
MOST_IN_HAND = 4096  # a pause and its end cost up to a second of fetching, so a hand lasts longer than that
_RANK_OF = {name: place * AGING_STEP_S for place, name in enumerate(PRIORITIES)}
_Entry = tuple[float, int, Message]


def _rank(message: Message) -> float:
    """When it was dispatched, plus five minutes for each step of priority below critical; what is broken goes first."""
    envelope = message.envelope
    return envelope.enqueued_at + _RANK_OF[envelope.priority] if envelope else 0.0


class KafkaInbox:
    """See ports.Inbox. Safe for threads."""

    def __init__(self, most: int = MOST_IN_HAND) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._news = 0
        self._hand: dict[str, list[_Entry]] = {}  # a heap for each tenant
        self._size = 0
        self._order = count()
        self._held: dict[Fence, tuple[Message, float]] = {}
        self._acked: list[Message] = []
        self._empty_since = time.monotonic()
        self._again_s = SOON_S[0]
        self._again_at: float | None = None
        self.listening = False

    # -- the poll thread -----------------------------------------------------------------------------------------------
    def add(self, messages: Sequence[Message]) -> None:
        if messages:
            with self._changed:
                self._put(messages)
                self._news += 1
                self._changed.notify_all()

    def drain_acked(self) -> list[Message]:
        with self._changed:
            acked, self._acked = self._acked, []
        return acked

    def forget(self, partitions: Collection[int]) -> None:
        """These went to another member of the group, which gets their deliveries. What runs is settled all the same."""
        gone = set(partitions)
        with self._changed:
            kept = [m for heap in self._hand.values() for *_, m in heap if m.partition not in gone]
            self._hand, self._size = {}, 0
            self._put(kept)

    @property
    def is_full(self) -> bool:
        return self._size >= self._most

    @property
    def has_room(self) -> bool:
        return self._size <= self._most // 2

    # -- waiting -------------------------------------------------------------------------------------------------------
    def wake(self) -> None:
        with self._changed:
            self._news += 1
            self._changed.notify_all()

    @property
    def news(self) -> int:
        return self._news

    def wait(self, seen: int, timeout_s: float) -> bool:
        """Until there is news that the caller has not seen, or something is to be offered again."""
        end = time.monotonic() + timeout_s
        with self._changed:
            while self._news == seen:
                now = time.monotonic()
                if self._again_at is not None and self._again_at <= now:
                    self._again_at = None
                    self._news += 1
                    self._changed.notify_all()
                elif now >= end:
                    return False
                else:
                    self._changed.wait((end if self._again_at is None else min(end, self._again_at)) - now)
            return True

    # -- the claim loops -----------------------------------------------------------------------------------------------
    def idle_s(self) -> float:
        with self._changed:
            return 0.0 if self._size else time.monotonic() - self._empty_since

    def take(self, count: int, cursor: str) -> list[Message]:
        with self._changed:
            self._give_up_lapsed()
            taken: list[Message] = []
            ring = sorted(self._hand, key=lambda tenant: (tenant != "", tenant <= cursor, tenant))
            while ring and len(taken) < count:
                for tenant in ring[: count - len(taken)]:
                    taken.append(heapq.heappop(self._hand[tenant])[2])
                ring = [tenant for tenant in ring if self._hand[tenant]]
            self._hand = {tenant: heap for tenant, heap in self._hand.items() if heap}
            self._size -= len(taken)
            if taken and not self._size:
                self._empty_since = time.monotonic()
            return taken

    def put_back(self, messages: Sequence[Message], *, soon: bool = False) -> None:
        with self._changed:
            self._put(messages)
            if soon and messages:
                self._again_at = time.monotonic() + self._again_s
                self._again_s = min(2 * self._again_s, SOON_S[1])
                self._changed.notify_all()

    def ack(self, messages: Sequence[Message]) -> None:
        with self._changed:
            self._acked += messages

    # -- what runs -----------------------------------------------------------------------------------------------------
    def hold(self, fence: Fence, message: Message, *, ttl_s: float) -> None:
        with self._changed:
            self._held[fence] = (message, time.monotonic() + ttl_s)
            self._again_s = SOON_S[0]

    def renewed(self, fences: Sequence[Fence], *, ttl_s: float) -> None:
        until = time.monotonic() + ttl_s
        with self._changed:
            for fence in fences:
                if fence in self._held:
                    self._held[fence] = (self._held[fence][0], until)

    def settled(self, fences: Sequence[Fence]) -> None:
        with self._changed:
            self._acked += [self._held.pop(fence)[0] for fence in fences if fence in self._held]

    def lost(self, fences: Sequence[Fence]) -> None:
        with self._changed:
            self._put([self._held.pop(fence)[0] for fence in fences if fence in self._held])

    def _give_up_lapsed(self) -> None:
        """A lease that was not renewed in its time is not ours any more, whatever became of its run."""
        now = time.monotonic()
        lapsed = [fence for fence, (_, until) in self._held.items() if until < now]
        self._put([self._held.pop(fence)[0] for fence in lapsed])

    def _put(self, messages: Sequence[Message]) -> None:
        for message in messages:
            tenant = message.envelope.tenant if message.envelope else ""
            heapq.heappush(self._hand.setdefault(tenant, []), (_rank(message), next(self._order), message))
        self._size += len(messages)
