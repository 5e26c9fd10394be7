"""A command's output on its way: read without waiting for anybody, kept up to a limit, handed on in batches."""

from __future__ import annotations

import asyncio
import codecs
import fcntl
import os
from collections.abc import Callable
from typing import Any

from dispatch.agents.batches import Batches, emit_text
from dispatch.agents.context import TurnContext
from dispatch.agents.patience import patiently
from dispatch.agents.said import CHUNK_CHARS, OutputLimit, progress_data

READ_BYTES = 64 * 1024
BIG_PIPE_BYTES = 1024 * 1024


class PipeReader:
    """Reads one pipe on the running loop until its end; `take` gets the bytes and answers how long to rest then.

    Rests are for floods, which would keep the loop from everything else. `closed` is done at the end.
    """

    def __init__(self, descriptor: int, take: Callable[[bytes], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._take = take
        self._big = False
        self._resting: asyncio.TimerHandle | None = None
        self.closed = self._loop.create_future()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._ready)

    def _ready(self) -> None:
        rest_s = self._read()
        if rest_s and not self.closed.done():
            self._grow()
            self._loop.remove_reader(self._descriptor)
            self._resting = self._loop.call_later(rest_s, self._resume)

    def _read(self) -> float:
        try:
            data = os.read(self._descriptor, BIG_PIPE_BYTES if self._big else READ_BYTES)
        except BlockingIOError:
            return 0.0
        if not data:
            self.close()
            return 0.0
        return self._take(data)

    def _resume(self) -> None:
        self._resting = None
        self._loop.add_reader(self._descriptor, self._ready)

    def _grow(self) -> None:
        if not self._big and hasattr(fcntl, "F_SETPIPE_SZ"):
            try:
                fcntl.fcntl(self._descriptor, fcntl.F_SETPIPE_SZ, BIG_PIPE_BYTES)
            except OSError:
                return  # this user's pipes hold as much as they may: it goes on with small ones
            self._big = True

    def finish(self) -> None:
        """Nobody is left to write: read what lies there, without waiting for an end that somebody else may hold."""
        left = 2 * BIG_PIPE_BYTES // READ_BYTES
        while not self.closed.done() and left:
            left -= 1
            try:
                data = os.read(self._descriptor, READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                break
            self._take(data)
        self.close()

    def close(self) -> None:
        if self.closed.done():
            return
        if self._resting is not None:
            self._resting.cancel()
        else:
            self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)
        self.closed.set_result(None)


class Tail:
    """The last bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()

    def add(self, data: bytes) -> None:
        self._kept += data
        del self._kept[: -self._limit]

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace").strip()


class Streamed:
    """What of a run goes to the job's stream: text in order up to a limit, the newest progress and checkpoint.

    `pump` writes it, a batch at a time; a store that is away for a moment is tried again.
    """

    def __init__(self, turn: TurnContext, limit_bytes: int) -> None:
        self._turn = turn
        self._limit = OutputLimit(limit_bytes)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text: list[str] = []
        self._chars = 0
        self._progress: tuple[float, float | None, str] | None = None
        self._checkpoint: list[Any] = []
        self._batches = Batches()

    # -- what comes ----------------------------------------------------------------------------------------------------
    def raw(self, data: bytes) -> None:
        self.text(self._decoder.decode(data))

    def text(self, text: str) -> None:
        if not (kept := self._limit.keep(text)):
            return
        self._text.append(kept)
        self._chars += len(kept)
        self._batches.came(full=self._chars >= CHUNK_CHARS)

    def progress(self, done: float, total: float | None, message: str) -> None:
        self._progress = (done, total, message)
        self._batches.came()

    def checkpoint(self, value: Any) -> None:
        self._checkpoint = [value]
        self._batches.came()

    # -- what goes -----------------------------------------------------------------------------------------------------
    async def pump(self) -> None:
        """Write until `finish` was called and everything is written. Raise what the store refuses."""
        await self._batches.pump(self._write)

    def finish(self) -> None:
        self.text(self._decoder.decode(b"", final=True))
        self._batches.finish()

    async def _write(self) -> None:
        text, self._text, self._chars = "".join(self._text), [], 0
        progress, self._progress = self._progress, None
        checkpoints, self._checkpoint = self._checkpoint, []
        await emit_text(self._turn, text)
        for value in checkpoints:
            await patiently(self._turn.acheckpoint, value)
        if progress is not None:
            await patiently(self._turn.write_now, "progress", progress_data(*progress))
