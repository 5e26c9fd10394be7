"""What a model says, on its way to the job's stream: text in order, in batches; tool calls and their ends."""

from __future__ import annotations

import asyncio

from dispatch.agents.batches import Batches, emit_text
from dispatch.agents.context import TurnContext
from dispatch.agents.patience import patiently
from dispatch.agents.said import CHUNK_CHARS, progress_data

LAST_WORDS_S = 1.0


class Spoken:
    """Taken without waiting, written in the order in which it came."""

    def __init__(self, turn: TurnContext) -> None:
        self._turn = turn
        self._waiting: list[str | tuple[int, str]] = []  # a text, or tool calls that have ended and what is said of one
        self._chars = self._ended = 0
        self._batches = Batches()
        self._pump = asyncio.create_task(self._batches.pump(self._write))

    def text(self, text: str) -> None:
        self._chars += len(text)
        self._take(text, full=self._chars >= CHUNK_CHARS)

    def tool_called(self, name: str) -> None:
        self._take((self._ended, f"{name} called"), full=True)

    def tool_ended(self, name: str, *, well: bool) -> None:
        self._ended += 1
        self._take((self._ended, f"{name} {'ended' if well else 'failed'}"), full=True)

    def _take(self, one: str | tuple[int, str], *, full: bool) -> None:
        if self._pump.done():
            self._pump.result()  # what the store refused ends the run
        self._waiting.append(one)
        self._batches.came(full=full)

    async def finish(self, *, within_s: float | None = None) -> None:
        """Write what is left. With a limit it is given up then, and what the store refuses is not raised."""
        self._batches.finish()
        await asyncio.wait({self._pump}, timeout=within_s)
        if within_s is None:
            return self._pump.result()
        self._pump.cancel()
        await asyncio.wait({self._pump}, timeout=within_s)
        if self._pump.done() and not self._pump.cancelled():
            self._pump.exception()

    async def _write(self) -> None:
        waiting, self._waiting, self._chars = self._waiting, [], 0
        text = ""
        for one in waiting:
            if isinstance(one, str):
                text += one
                continue
            await emit_text(self._turn, text)
            text, (ended, message) = "", one
            await patiently(self._turn.write_now, "progress", progress_data(ended, None, message))
        await emit_text(self._turn, text)
