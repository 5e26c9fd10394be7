"""A worker process: its consumers, their lease keeper, the ear for wake-ups, the ticks, and an orderly end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from dispatch.agents.registry import Registry
from dispatch.ports import Authority, Listener, TurnStore
from dispatch.tracing import NO_TRACES, Tracer
from dispatch.worker.capacity import ProcessPressure
from dispatch.worker.consumer import Consumer, ConsumerSettings
from dispatch.worker.leases import LeaseKeeper
from dispatch.worker.runners import Runners
from dispatch.worker_ports import WorkerEvents, WorkerRegistry

log = logging.getLogger("dispatch.worker")

BLIND_LIMIT_S = 30.0
FAREWELL_S = 5.0  # the same, once there is nothing more to wait for
EXIT_BLIND = 1
LISTEN_S = 0.5
DEAF_S = 5.0  # what the end of a process waits for its listener to take leave
DEAF_AND_BLIND_S = 1.0  # the same where the store gives no answer


class WorkerProcess:
    """`run` returns the exit code: 0 after an orderly end, 1 when a loop broke or the store gave no answer.

    An answer is awaited for 30 s; after a signal for 5 s, once nothing runs or what runs was handed back: what cannot
    be written then is left to the leases.
    """

    def __init__(
        self,
        consumers: Sequence[ConsumerSettings],
        *,
        authority: Authority,
        agents: Registry,
        store: TurnStore,
        registry: WorkerRegistry,
        events: WorkerEvents,
        listener: Listener | None,
        renew_s: float,
        grace_s: float,
        housekeeping: Callable[[], float] | None = None,
        tracer: Tracer = NO_TRACES,
    ) -> None:
        self._grace_s = grace_s
        self._listener = listener
        self._housekeeping = housekeeping
        self._authority = authority
        self._events = events
        self._changed = threading.Event()
        self._signals = 0
        self._over = False
        self._deaf = threading.Event()
        self._keeper = LeaseKeeper(
            authority=authority, events=events, ttl_s=consumers[0].ttl_s, renew_s=renew_s, notify=self._nudge
        )
        runners = Runners(store)
        pressed = ProcessPressure()
        self._consumers = [
            Consumer(
                settings,
                authority=authority,
                agents=agents,
                store=store,
                registry=registry,
                keeper=self._keeper,
                runners=runners,
                events=events,
                exited=self._changed.set,
                pressed=pressed,
                tracer=tracer,
            )
            for settings in consumers
        ]

    def signal(self) -> None:
        """SIGTERM or SIGINT: the first stops claiming, the second hands back at once.

        Called in a signal handler, so it takes no lock: the thread that it interrupts may hold it. `_wait` polls.
        """
        self._signals += 1

    def run(self) -> int:
        threads = []
        if self._listener is not None:
            threads.append(threading.Thread(target=self._listen, name="wake-up", daemon=True))
        if self._housekeeping is not None:
            threads.append(threading.Thread(target=self._keep_house, name="ticks", daemon=True))
        first = self._consumers[0].settings
        facts = {"worker_id": first.worker_id, "consumers": len(self._consumers), "capacity": first.capacity}
        log.info("worker started", extra={**facts, "agents": ",".join(first.serves.agents)})
        self._keeper.start()
        for consumer in self._consumers:
            consumer.start()
        for thread in threads:
            thread.start()
        code = self._wait()
        self._over = True
        log.info("worker ended", extra={"worker_id": first.worker_id, "code": code})
        if code == 0:
            self._keeper.stop()
        if self._listener is not None:
            self._deaf.wait(DEAF_S if code == 0 else DEAF_AND_BLIND_S)
        return code

    def _wait(self) -> int:
        stopped_at: float | None = None
        handed_back_at: float | None = None
        while not all(consumer.done.is_set() for consumer in self._consumers):
            self._changed.wait(0.2)
            self._changed.clear()
            now = time.monotonic()
            if self._signals and stopped_at is None:
                stopped_at = now
                log.info("worker stops: it claims no more", extra={"grace_s": self._grace_s})
                for consumer in self._consumers:
                    consumer.stop_claiming()
            grace_over = stopped_at is not None and (self._signals > 1 or now >= stopped_at + self._grace_s)
            if grace_over and handed_back_at is None:
                handed_back_at = now
                for consumer in self._consumers:
                    consumer.hand_back()
            if any(self._is_blind(consumer, stopped_at, handed_back_at) for consumer in self._consumers):
                return EXIT_BLIND
        well = all(consumer.blind_s == 0 and not consumer.failed for consumer in self._consumers)
        return 0 if well else EXIT_BLIND

    @staticmethod
    def _is_blind(consumer: Consumer, stopped_at: float | None, handed_back_at: float | None) -> bool:
        """Whether no answer of the store is to be awaited any longer."""
        if consumer.done.is_set():
            return False
        since = handed_back_at if consumer.busy else stopped_at  # nothing else has been waited for since then
        waited = since is not None and time.monotonic() > since + FAREWELL_S
        return consumer.blind_s > (FAREWELL_S if waited else BLIND_LIMIT_S)

    def _nudge(self) -> None:
        for consumer in self._consumers:
            consumer.nudge()

    def _listen(self) -> None:
        """Until nobody here claims any more: what a broker would still bring is for other processes."""
        assert self._listener is not None
        while not self._over and any(consumer.claiming for consumer in self._consumers):
            if self._listener.wait(LISTEN_S) and not self._over:
                for consumer in self._consumers:
                    consumer.wake()
        self._listener.close()
        self._deaf.set()

    def _keep_house(self) -> None:
        assert self._housekeeping is not None
        while not self._over:
            try:
                pause = self._housekeeping()
            except Exception as error:  # a tick that fails is tried again; the consumers go on
                self._events.blind(error, 0.0)
                self._authority.recover()
                pause = 1.0
            self._authority.release()
            time.sleep(pause)
