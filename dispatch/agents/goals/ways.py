"""How one loop runs agents of both sorts: in the run's own thread, or on the worker's event loop.

The loop is one coroutine. In a thread none of its awaits waits, so that it runs from its begin to its end at one call,
and the agent finds no event loop there, as in every other run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

from dispatch.agents.context import TurnContext
from dispatch.agents.patience import undisturbed

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]


class Way(Protocol):
    """`blocking`: what may take its time. `looped`: what needs an event loop; it is cancelled when the run is told."""

    async def agent(self, fn: Callable[..., Any]) -> Any: ...
    async def store(self, method: Callable[..., Any], *args: Any) -> Any: ...
    async def blocking(self, fn: Callable[..., Any], *args: Any) -> Any: ...
    async def looped(self, work: Work[T]) -> T: ...


class OnLoop:
    """For async agents."""

    def __init__(self, turn: TurnContext) -> None:
        self._turn = turn

    async def agent(self, fn: Callable[..., Any]) -> Any:
        return await fn(self._turn)

    async def store(self, method: Callable[..., Any], *args: Any) -> Any:
        return await undisturbed(self._turn.astored(method, *args))  # half a commit is none

    async def blocking(self, fn: Callable[..., Any], *args: Any) -> Any:
        # a thread cannot be stopped: the run has not ended before it has
        return await undisturbed(asyncio.to_thread(fn, *args))

    async def looped(self, work: Work[T]) -> T:
        return await work()


class InThread:
    """For sync agents."""

    def __init__(self, turn: TurnContext) -> None:
        self._turn = turn

    async def agent(self, fn: Callable[..., Any]) -> Any:
        return fn(self._turn)

    async def store(self, method: Callable[..., Any], *args: Any) -> Any:
        return self._turn.stored(method, *args)

    async def blocking(self, fn: Callable[..., Any], *args: Any) -> Any:
        return fn(*args)

    async def looped(self, work: Work[T]) -> T:
        return asyncio.run(self._until_told(work))

    async def _until_told(self, work: Work[T]) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed a moment ago
                loop.call_soon_threadsafe(task.cancel)

        self._turn.on_told(cancel)
        try:
            return await work()
        finally:
            self._turn.on_told(None)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose awaits do not wait."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    work.close()
    raise RuntimeError("a loop in a thread has nothing to wait for")
