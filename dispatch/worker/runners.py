"""Where turns run: sync agents in threads, async ones on one loop of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from dispatch.outcomes import Outcome
from dispatch.ports import TurnStore
from dispatch.worker.settlement import Slot

Done = Callable[[Slot, Outcome], None]


class _IdleThreads:
    """Daemon threads that are used again: a run that never ends cannot keep the process from exiting."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_RunThread] = []
        self._count = 0

    def run(self, work: Callable[[], None]) -> None:
        with self._lock:
            thread = self._idle.pop() if self._idle else None
            if thread is None:
                self._count += 1
                thread = _RunThread(f"turn-{self._count}", self._park)
                thread.start()
        thread.give(work)

    def _park(self, thread: _RunThread) -> None:
        with self._lock:
            self._idle.append(thread)


class _RunThread(threading.Thread):
    def __init__(self, name: str, park: Callable[[_RunThread], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._park = park
        self._ready = threading.Semaphore(0)
        self._work: Callable[[], None] | None = None

    def give(self, work: Callable[[], None]) -> None:
        self._work = work
        self._ready.release()

    def run(self) -> None:
        while True:
            self._ready.acquire()
            work, self._work = self._work, None
            if work is not None:
                work()
            self._park(self)


class Runners:
    """Starts runs and reports their outcomes."""

    def __init__(self, store: TurnStore) -> None:
        self._store = store
        self._threads = _IdleThreads()
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
