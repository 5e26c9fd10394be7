"""One claim loop: settle what ended, claim what is free, start it, report itself."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from dispatch.agents.registry import Registry
from dispatch.agents.runner import Stop, TurnRun
from dispatch.outcomes import HandedBack, LeaseGone, Outcome
from dispatch.ports import Authority, Lease, Serves, Settlement, TurnStore
from dispatch.states import Verb
from dispatch.tracing import NO_TRACES, Tracer
from dispatch.worker.capacity import Capacity
from dispatch.worker.leases import LeaseKeeper
from dispatch.worker.runners import Runners
from dispatch.worker.settlement import Finished, Slot, settlement_of
from dispatch.worker_ports import Beat, WorkerEvents, WorkerRegistry

POLL_S = 0.5
BEAT_GAP_S = 1.0  # a change of what runs is reported at most this often
BACKOFF_S = (0.1, 2.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerSettings:
    """What a consumer is: its name, the owner of its leases, and its limits."""

    worker_id: str
    owner: str
    host: str
    pid: int
    capacity: int
    serves: Serves
    ttl_s: float
    heartbeat_s: float
    max_capacity: int | None = None  # None: `capacity` is all there is
    once: bool = False
    drain: bool = False


class Consumer:
    """Runs in a thread of its own; `wake`, `stop_claiming` and `hand_back` may be called from any other."""

    def __init__(
        self,
        settings: ConsumerSettings,
        *,
        authority: Authority,
        agents: Registry,
        store: TurnStore,
        registry: WorkerRegistry,
        keeper: LeaseKeeper,
        runners: Runners,
        events: WorkerEvents,
        exited: Callable[[], None],
        pressed: Callable[[], bool] = lambda: False,
        tracer: Tracer = NO_TRACES,
    ) -> None:
        self.settings = settings
        self._authority = authority
        self._agents = agents
        self._store = store
        self._registry = registry
        self._keeper = keeper
        self._runners = runners
        self._events = events
        self._exited = exited
        self._tracer = tracer
        self._capacity = Capacity(settings.capacity, settings.max_capacity or settings.capacity, pressed=pressed)
        self._finished = Finished(settings.capacity)
        self._slots: set[Slot] = set()
        self._owed: list[Settlement] = []  # ended, and not yet written
        self._writing: list[Settlement] = []  # being written
        self._late: list[Lease] = []  # their runs have ended since they were settled without, or by another
        self._claiming = True
        self._hand_back = threading.Event()
        self._cursor = ""
        self._started_at = time.time()
        self._beat_at = -math.inf
        self._beaten = (settings.capacity, 0, frozenset[int]())
        self._blind_since: float | None = None
        self._asking_since: float | None = None
        self._backoff = BACKOFF_S[0]
        self._claimed_last = 0
        self._begun_at = 0.0  # when the turns of the last claim began
        self._passes = 0
        self.failed = False
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._run, name=settings.worker_id, daemon=True)

    # -- from other threads --------------------------------------------------------------------------------------------
    def start(self) -> None:
        self.thread.start()

    def wake(self) -> None:
        if len(self._slots) < self._capacity.current:
            self._finished.wake()

    def nudge(self) -> None:
        """Look at what was told to stop."""
        self._finished.wake()

    def stop_claiming(self) -> None:
        self._claiming = False
        self._finished.wake()

    def hand_back(self) -> None:
        """Give back what still runs, now."""
        self._claiming = False
        self._hand_back.set()
        self._finished.wake()

    @property
    def claiming(self) -> bool:
        return self._claiming

    @property
    def busy(self) -> bool:
        """Whether turns run, or have ended and are not written yet."""
        return bool(self._slots or self._owed or self._writing)

    @property
    def blind_s(self) -> float:
        """How long the loop has had no answer of its store, be it an error or none at all; 0 when it has."""
        since = [at for at in (self._blind_since, self._asking_since) if at is not None]
        return time.monotonic() - min(since) if since else 0.0

    # -- the loop ------------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        try:
            while not self._is_over():
                self._round()
            self._leave()
        except BaseException:
            self.failed = True
            raise
        finally:
            self.done.set()
            self._exited()

    def _is_over(self) -> bool:
        if self._running() or self._owed:
            return False
        if not self._claiming:
            return True
        if self.settings.once:
            return self._passes > 0
        return self.settings.drain and self._passes > 0 and self._claimed_last == 0

    def _running(self) -> int:
        return sum(not slot.abandoned for slot in self._slots)

    def _fresh(self) -> int:
        return sum(slot.claimed_at == self._begun_at for slot in self._slots)

    def _round(self) -> None:
        # a step that follows at once uses the same connection; before a longer wait it is given back
        ended = self._finished.take(
            in_flight=self._running(), fresh=self._fresh(), timeout_s=self._pause(), idle=self._authority.release
        )
        for slot, outcome in ended:
            self._end(slot, outcome)
        if self._hand_back.is_set():
            self._give_back()
        self._abandon()
        self._capacity.rest(len(self._slots))
        want = self._want()
        self._writing = owed = self._owed
        self._owed = []
        began = self._asking_since = time.monotonic()
        try:
            if self._beat_at == -math.inf:
                self._beat()  # it is seen before it claims
            if owed or want:
                self._step(owed, want, began)
            self._note_late()
            self._beat()
        except Exception as error:  # the store may be away; what ended stays owed, what runs goes on
            self._owed = owed + self._owed
            self._be_blind(error, since=began)
            return
        finally:
            self._asking_since = None
        self._blind_since, self._backoff = None, BACKOFF_S[0]

    def _pause(self) -> float:
        if self._owed or (self._claimed_last and self._want()) or self._passes == 0:
            return 0.0
        pause = POLL_S
        if self._beaten != self._shape():
            pause = min(pause, max(0.0, self._beat_at + BEAT_GAP_S - time.monotonic()))
        return pause

    def _want(self) -> int:
        if not self._claiming or (self.settings.once and self._passes):
            return 0
        return max(0, self._capacity.current - len(self._slots))

    def _step(self, owed: list[Settlement], want: int, began: float) -> None:
        """Settle and claim; `owed` is emptied once it is written."""
        settings, since_ns = self.settings, time.time_ns()
        result = self._authority.step(
            owner=settings.owner,
            ttl_s=settings.ttl_s,
            settle=owed,
            want=want,
            serves=settings.serves,
            cursor=self._cursor,
        )
        written = {settlement.lease.item_id: settlement for settlement in owed}
        owed.clear()
        for settled in result.settled:
            lease, parent = written[settled.item_id].lease, written[settled.item_id].traceparent
            self._events.settled(settled, lease)
            self._tracer.settled(settled, lease, parent=parent, since_ns=since_ns)
        for settlement in result.lost:
            self._events.refused(settlement.lease)
            self._late += [settlement.lease] if settlement.ended else []
        if want:
            self._passes += 1
            self._claimed_last = len(result.claimed)
        if result.claimed:
            self._begun_at = began
        for lease in result.claimed:
            self._cursor = lease.tenant
            self._begin(lease, began)
        if want:
            self._capacity.claimed(len(result.claimed), wanted=want, taken=len(self._slots))

    def _begin(self, lease: Lease, began: float) -> None:
        agent = self._agents.runner_of(lease)
        if agent is None:  # it was served when the claim was made: another worker may have it
            self._owed.append(Settlement(lease=lease, verb=Verb.HANDBACK, message="the agent is gone"))
            return
        slot = Slot(run=TurnRun(lease, agent, self._store, tracer=self._tracer), agent=agent, claimed_at=began)
        self._slots.add(slot)
        self._keeper.add(slot)
        self._events.claimed(lease)
        self._runners.start(slot, self._finished.add)

    def _end(self, slot: Slot, outcome: Outcome) -> None:
        """A run thread has ended: keep what is to be written, free the slot."""
        self._slots.discard(slot)
        self._keeper.remove(slot)
        if slot.abandoned or isinstance(outcome, LeaseGone):
            self._late.append(slot.lease)
        if not slot.abandoned:
            self._owe(slot, outcome)

    def _owe(self, slot: Slot, outcome: Outcome) -> None:
        self._events.ended(slot.lease, type(outcome).__name__, slot.run.run_s or time.monotonic() - slot.claimed_at)
        settlement = settlement_of(slot, outcome)
        if settlement is None:
            self._events.refused(slot.lease)
        else:
            self._owed.append(settlement)

    def _abandon(self) -> None:
        """Settle without the runs that were told to stop and have not within their grace; their slots stay taken."""
        now = time.monotonic()
        for slot in self._slots:
            if slot.abandoned or slot.told_at is None or now < slot.told_at + slot.agent.stop_grace_s:
                continue
            slot.abandoned = True
            self._keeper.remove(slot)
            self._events.stuck(slot.lease)
            self._owe(slot, slot.run.abandon())

    def _give_back(self) -> None:
        """Tell what still runs to stop; what does not stop at once is handed back without it."""
        for slot in list(self._slots):
            if not slot.abandoned and slot.told_at is None:
                self._keeper.tell(slot, Stop.HANDBACK)
        end = time.monotonic() + 0.5
        while self._running() and time.monotonic() < end:
            for slot, outcome in self._finished.take(in_flight=1, timeout_s=0.05):
                self._end(slot, outcome)
        for slot in list(self._slots):
            if not slot.abandoned:
                slot.abandoned = True
                self._keeper.remove(slot)
                slot.run.fence()
                self._owe(slot, HandedBack(message="the worker shuts down"))

    def _note_late(self) -> None:
        while self._late:
            self._authority.stopped(lease=self._late[-1])
            self._late.pop()

    def _be_blind(self, error: Exception, *, since: float) -> None:
        if self._blind_since is None:
            self._blind_since = since
        self._events.blind(error, time.monotonic() - self._blind_since)
        self._authority.recover()
        time.sleep(self._backoff)
        self._backoff = min(self._backoff * 2, BACKOFF_S[1])

    # -- the registry --------------------------------------------------------------------------------------------------
    def _shape(self) -> tuple[int, int, frozenset[int]]:
        """What a beat tells that changes: how many slots there are, what runs in them, and how many of it is stuck."""
        stuck = sum(slot.abandoned for slot in self._slots)
        return self._capacity.current, stuck, frozenset(slot.lease.item_id for slot in self._slots)

    def _beat(self) -> None:
        now = time.monotonic()
        shape = self._shape()
        changed = shape != self._beaten and now - self._beat_at >= BEAT_GAP_S
        if not (changed or now - self._beat_at >= self.settings.heartbeat_s):
            return
        settings = self.settings
        drain = self._registry.beat(
            Beat(
                worker_id=settings.worker_id,
                token=settings.owner,
                host=settings.host,
                pid=settings.pid,
                capacity=self._capacity.current,
                active=[slot.lease for slot in self._slots],
                stuck=[slot.lease for slot in self._slots if slot.abandoned],
                serves=settings.serves,
                started_at=self._started_at,
            )
        )
        self._beat_at, self._beaten = now, shape
        if drain:
            self._claiming = False

    def _leave(self) -> None:
        since = self._asking_since = time.monotonic()
        try:
            self._registry.leave(self.settings.worker_id)
        except Exception as error:  # the row goes stale by itself
            self._blind_since = self._blind_since or since
            self._events.blind(error, self.blind_s)
        self._asking_since = None
        self._authority.recover()  # this thread's connection ends with it
