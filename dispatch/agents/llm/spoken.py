"""What a model says, on its way to the job's stream: text in order, in batches; tool calls and their ends."""

from __future__ import annotations

import asyncio

from dispatch.agents.context import CHUNK_CHARS, TurnContext
from dispatch.agents.patience import patiently

BATCH_S = 0.25
LAST_WORDS_S = 1.0


class Spoken:
    """Taken without waiting, written by `pump` in the order in which it came."""

    def __init__(self, turn: TurnContext) -> None:
        self._turn = turn
        self._waiting: list[str | tuple[int, str]] = []  # a text, or tool calls that have ended and what is said of one
        self._chars = self._ended = 0
        self._changed, self._full = asyncio.Event(), asyncio.Event()
        self._over = False
        self._pump = asyncio.create_task(self._write_all())

    def text(self, text: str) -> None:
        self._take(text)
        self._chars += len(text)
        if self._chars >= CHUNK_CHARS:
            self._full.set()

    def tool_called(self, name: str) -> None:
        self._take((self._ended, f"{name} called"))
        self._full.set()

    def tool_ended(self, name: str, *, well: bool) -> None:
        self._ended += 1
        self._take((self._ended, f"{name} {'ended' if well else 'failed'}"))
        self._full.set()

    def _take(self, one: str | tuple[int, str]) -> None:
        if self._pump.done():
            self._pump.result()  # what the store refused ends the run
        self._waiting.append(one)
        self._changed.set()

    async def finish(self, *, within_s: float | None = None) -> None:
        """Write what is left. With a limit it is given up then, and what the store refuses is not raised."""
        self._over = True
        self._changed.set()
        self._full.set()
        await asyncio.wait({self._pump}, timeout=within_s)
        if within_s is None:
            return self._pump.result()
        self._pump.cancel()
        await asyncio.wait({self._pump}, timeout=within_s)
        if self._pump.done() and not self._pump.cancelled():
            self._pump.exception()

    async def _write_all(self) -> None:
        while not self._over or self._waiting:
            await self._changed.wait()
            if not self._over:
                await self._gather()
            self._changed.clear()
            self._full.clear()
            waiting, self._waiting, self._chars = self._waiting, [], 0
            await self._write(waiting)

    async def _gather(self) -> None:
        try:
            await asyncio.wait_for(self._full.wait(), BATCH_S)
        except TimeoutError:
            return

    async def _write(self, waiting: list[str | tuple[int, str]]) -> None:
        text = ""
        for one in waiting:
            if isinstance(one, str):
                text += one
                continue
            text = await self._emit(text)
            ended, message = one
            await patiently(self._turn.aprogress, ended, None, message)
        await self._emit(text)

    async def _emit(self, text: str) -> str:
        """Answer what is left to be said: nothing."""
        for at in range(0, len(text), CHUNK_CHARS):
            await patiently(self._turn.aemit, text[at : at + CHUNK_CHARS])
        return ""
