"""When what an agent says is written: not each piece by itself, and soon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dispatch.agents.clean import clean_text
from dispatch.agents.context import TurnContext
from dispatch.agents.patience import patiently
from dispatch.agents.said import BATCH_S, CHUNK_CHARS


class Batches:
    """A batch is written a quarter of a second after the first piece of it came, or as soon as it is `full`."""

    def __init__(self) -> None:
        self._changed, self._full = asyncio.Event(), asyncio.Event()
        self._over = False

    def came(self, *, full: bool = False) -> None:
        self._changed.set()
        if full:
            self._full.set()

    def finish(self) -> None:
        """Nothing more comes: write what is left, at once."""
        self._over = True
        self.came(full=True)

    async def pump(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write, batch after batch, until `finish` was called and everything is written. Raise what `write` raises."""
        while not self._over or self._changed.is_set():
            await self._changed.wait()
            if not self._over:
                await self._gather()
            self._changed.clear()
            self._full.clear()
            await write()

    async def _gather(self) -> None:
        try:
            await asyncio.wait_for(self._full.wait(), BATCH_S)
        except TimeoutError:
            return


async def emit_text(turn: TurnContext, text: str) -> None:
    """Stream it in chunks; a store that is away for a moment is tried again."""
    whole = clean_text(text)
    for at in range(0, len(whole), CHUNK_CHARS):
        await patiently(turn.write_now, "text", {"text": whole[at : at + CHUNK_CHARS]})
