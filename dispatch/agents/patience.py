"""Waiting that a cancel or a store that is away for a moment does not break, for the agents of this package."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from dispatch.errors import DispatchError

T = TypeVar("T")
TRY_AGAIN_S, GIVE_UP_S = 1.0, 30.0


async def patiently(write: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Write, and try again while the store is away; what it refuses, a lost lease among it, is raised at once."""
    until = time.monotonic() + GIVE_UP_S
    while True:
        try:
            return await write(*args)
        except DispatchError:  # a refusal, a lost lease among them, stays one
            raise
        except Exception:
            if time.monotonic() >= until:
                raise
        await asyncio.sleep(TRY_AGAIN_S)


def patiently_here(write: Callable[..., T], *args: Any, unless: Callable[[], bool]) -> T:
    """The same in this thread; not tried again when `unless` is true."""
    until = time.monotonic() + GIVE_UP_S
    while True:
        try:
            return write(*args)
        except DispatchError:
            raise
        except Exception:
            if unless() or time.monotonic() >= until:
                raise
        time.sleep(TRY_AGAIN_S)


async def undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """Await it to its end although this task may be cancelled meanwhile, as by a loop that is closed."""
    task = asyncio.create_task(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    return task.result()


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
    """Await it to its end; a cancel that came meanwhile is raised then, so that the run does not go on."""
    task, cancelled = asyncio.create_task(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    result = task.result()
    if cancelled:
        raise asyncio.CancelledError
    return result
