"""Where turns run: sync agents in threads, async ones on one loop of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue

from dispatch.outcomes import Outcome
from dispatch.ports import TurnStore
from dispatch.worker.settlement import Slot

Done = Callable[[Slot, Outcome], None]


class _RunThreads:
    """Daemon threads that are used again: a run that never ends cannot keep the process from exiting.

    There are never fewer threads than runs. Work waits in one queue, so a thread whose run was short takes the next one
    before another has to be woken for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._work: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._count = 0
        self._idle = 0  # threads that have neither a run nor one waiting for them

    def run(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._count += 1
                threading.Thread(target=self._serve, name=f"turn-{self._count}", daemon=True).start()
        self._work.put(work)

    def _serve(self) -> None:
        while True:
            work = self._work.get()
            work()
            del work  # what it holds must not live until the next run
            with self._lock:
                self._idle += 1


class Runners:
    """Starts runs and reports their outcomes."""

    def __init__(self, store: TurnStore) -> None:
        self._store = store
        self._threads = _RunThreads()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, slot: Slot, done: Done) -> None:
        if slot.agent.is_async:
            self._event_loop().call_soon_threadsafe(self._start_task, slot, done)
        else:
            self._threads.run(lambda: self._run_sync(slot, done))

    def _run_sync(self, slot: Slot, done: Done) -> None:
        outcome = slot.run.run_sync()
        self._store.release()
        done(slot, outcome)

    def _start_task(self, slot: Slot, done: Done) -> None:
        task = asyncio.get_running_loop().create_task(self._run_async(slot, done))
        self._tasks.add(task)  # a task that nobody holds may be collected
        task.add_done_callback(self._tasks.discard)

    async def _run_async(self, slot: Slot, done: Done) -> None:
        done(slot, await slot.run.run_async())

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name="agents-loop", daemon=True).start()
                self._loop = loop
            return self._loop
