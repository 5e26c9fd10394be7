"""The lease keeper: one thread that renews every lease of the process and tells runs to stop."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from dispatch.agents.runner import Stop
from dispatch.ports import Authority
from dispatch.worker.settlement import Slot
from dispatch.worker_ports import WorkerEvents

LOOK_S = 1.0  # a requested cancel reaches its run within two of these


class LeaseKeeper:
    """Renews in one statement, looks for cancels once a second, keeps time limits and deadlines.

    A lease that could not be renewed within its TTL is lost: its run is told so, and its commit would be refused.
    """

    def __init__(
        self,
        *,
        authority: Authority,
        events: WorkerEvents,
        ttl_s: float,
        renew_s: float,
        notify: Callable[[], None] = lambda: None,
    ) -> None:
        self._authority = authority
        self._events = events
        self._ttl_s = ttl_s
        self._renew_s = renew_s
        self._notify = notify
        self._lock = threading.Lock()
        self._slots: dict[int, Slot] = {}
        self._held_until: dict[int, float] = {}
        self._changed = threading.Event()
        self._ended = False
        self._next_renewal = time.monotonic() + renew_s
        self._next_look = time.monotonic() + LOOK_S
        self._thread = threading.Thread(target=self._loop, name="lease-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended = True
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def add(self, slot: Slot) -> None:
        with self._lock:
            older = self._slots.get(slot.lease.item_id)
            self._slots[slot.lease.item_id] = slot
            self._held_until[slot.lease.item_id] = slot.claimed_at + self._ttl_s
        slot.run.held_until(slot.claimed_at + self._ttl_s)
        if slot.agent.timeout_s is not None:
            slot.run.context.limits = {Stop.TIMEOUT: slot.claimed_at + slot.agent.timeout_s}
        if older is not None:  # this process lost the turn and claimed it again while the old run goes on
            self._tell_lost(older)
        if slot.run.context.limits or slot.lease.deadline is not None:
            self._changed.set()

    def remove(self, slot: Slot) -> None:
        with self._lock:
            if self._slots.get(slot.lease.item_id) is slot:
                del self._slots[slot.lease.item_id]
                self._held_until.pop(slot.lease.item_id, None)

    def _loop(self) -> None:
        while not self._ended:
            self._changed.wait(self._pause())
            self._changed.clear()
            if not self._ended:
                self.once()
                self._authority.release()
        self._authority.recover()  # this thread's connection ends with it

    def _pause(self) -> float:
        now, wall = time.monotonic(), time.time()
        at = min(self._next_renewal, self._next_look)
        with self._lock:
            for slot in self._slots.values():
                if slot.told_at is None:
                    at = min(at, now + self._left(slot, now, wall))
        return max(0.0, min(at - now, LOOK_S))

    @staticmethod
    def _left(slot: Slot, now: float, wall: float) -> float:
        left = min([LOOK_S, *(at - now for at in slot.run.context.limits.values())])
        if slot.lease.deadline is not None:
            left = min(left, slot.lease.deadline.timestamp() - wall)
        return left

    def once(self) -> None:
        """One round: time limits, then renewals or a look for cancels, then what could not be renewed in time."""
        now, wall = time.monotonic(), time.time()
        with self._lock:
            slots = list(self._slots.values())
        for slot in slots:
            if slot.told_at is not None:
                continue
            if slot.lease.deadline is not None and slot.lease.deadline.timestamp() <= wall:
                self.tell(slot, Stop.EXPIRED)
            elif over := [why for why, at in slot.run.context.limits.items() if at <= now]:
                self.tell(slot, over[0])
        if now >= min(self._next_renewal, self._next_look):
            self._ask(slots, now)
        self._give_up(slots)

    def _ask(self, slots: list[Slot], now: float) -> None:
        renewing = now >= self._next_renewal
        fences = [slot.lease.fence for slot in slots]
        if fences:
            try:
                if renewing:
                    answer = self._authority.renew(ttl_s=self._ttl_s, leases=fences)
                else:
                    answer = self._authority.cancels(leases=fences)
            except Exception as error:  # whatever the store says, the runs go on until their leases end
                self._events.blind(error, 0.0)
                self._authority.recover()
                self._next_look = time.monotonic() + LOOK_S
                return
            lost = set(answer.lost)
            if renewing:
                self._note_renewed([slot for slot in slots if slot.lease.item_id not in lost], now + self._ttl_s)
            for slot in slots:
                if slot.lease.item_id in lost:
                    self._lose(slot)
                elif slot.told_at is None and slot.lease.item_id in answer.cancelled:
                    code = answer.cancelled[slot.lease.item_id]
                    self.tell(slot, Stop.EXPIRED if code == Stop.EXPIRED else Stop.CANCELLED)
        self._next_look = now + LOOK_S
        if renewing:
            self._next_renewal = now + self._renew_s

    def _note_renewed(self, slots: list[Slot], until: float) -> None:
        with self._lock:
            held = [slot for slot in slots if self._slots.get(slot.lease.item_id) is slot]
            for slot in held:
                self._held_until[slot.lease.item_id] = until
        for slot in held:
            slot.run.held_until(until)

    def _give_up(self, slots: list[Slot]) -> None:
        now = time.monotonic()
        with self._lock:
            over = [slot for slot in slots if self._held_until.get(slot.lease.item_id, now + 1) <= now]
        for slot in over:
            self._lose(slot)

    def _lose(self, slot: Slot) -> None:
        with self._lock:
            if self._slots.get(slot.lease.item_id) is not slot:
                return
        self._tell_lost(slot)

    def _tell_lost(self, slot: Slot) -> None:
        if slot.run.stopped == Stop.LOST:
            return
        self._events.lease_lost(slot.lease)
        slot.told_at = slot.told_at or time.monotonic()
        slot.run.stop(Stop.LOST)
        self._notify()

    def tell(self, slot: Slot, code: str) -> None:
        """Tell a run to stop, once."""
        slot.told_at = time.monotonic()
        slot.run.stop(code)
        self._notify()
