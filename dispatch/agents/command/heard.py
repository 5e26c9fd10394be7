"""What one run of a command says: read, handed on, and turned into the turn's result."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from dispatch.agents.command.lines import BadLine, Lines
from dispatch.agents.command.output import PipeReader, Streamed, Tail
from dispatch.agents.command.process import Running
from dispatch.agents.command.spec import CommandSpec
from dispatch.agents.context import TurnContext
from dispatch.agents.control import Result

STDERR_BYTES = 2048
PREVIEW_CHARS = 16 * 1024
FLOOD_REST_S = 0.002
LAST_WORDS_S = 1.0


class CommandFailed(Exception):
    """The command could not be started, or ended otherwise than by a code that the file names."""


class Heard:
    """What one run of a command has said so far, and where that goes."""

    def __init__(self, spec: CommandSpec, turn: TurnContext, running: Running) -> None:
        self._spec, self._running = spec, running
        self._streamed = Streamed(turn, spec.output_limit_bytes)
        self.lines = Lines(self._streamed)
        self._errors = Tail(STDERR_BYTES)
        self._kept = bytearray()
        self._bytes = self._error_bytes = 0
        self._bad: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._readers = (
            PipeReader(running.stdout, self._out),
            PipeReader(running.stderr, self._err),
        )
        self._pump = asyncio.create_task(self._streamed.pump())

    async def until_ended(self) -> None:
        """Return when nothing of the command is left and all it said is written. Raise what it may not say."""
        ended = asyncio.create_task(self._running.ended())
        try:
            await asyncio.wait({ended, self._bad, self._pump}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if self._bad.done():
            self._bad.result()
        if self._pump.done():
            self._pump.result()
        self._close()
        if self._bad.done():
            self._bad.result()
        await asyncio.wait({self._pump})  # a cancel of this must not stop the writing
        self._pump.result()

    async def stop(self) -> None:
        """End the command; write what it said, as far as that is still wanted and the store is there."""
        await self._running.end()
        self._close()
        await asyncio.wait({self._pump}, timeout=LAST_WORDS_S)
        self._pump.cancel()
        for over in (self._pump, self._bad):
            if over.done() and not over.cancelled():
                over.exception()  # what stopped the run is raised, not what followed

    def _close(self) -> None:
        for reader in self._readers:
            reader.finish()
        if self._spec.output == "jsonl" and not self._bad.done():
            self._feed(b"", last=True)
        self._streamed.finish()

    def _out(self, data: bytes) -> float:
        self._bytes += len(data)
        if self._spec.output == "jsonl":
            self._feed(data)
        else:
            self._kept += data[: max(0, self._spec.output_limit_bytes - len(self._kept))]
            self._streamed.raw(data)
        return FLOOD_REST_S if self._bytes > self._spec.output_limit_bytes else 0.0

    def _feed(self, data: bytes, *, last: bool = False) -> None:
        if self._bad.done():
            return
        try:
            self.lines.feed(data)
            if last:
                self.lines.close()
        except BadLine as error:
            self._bad.set_exception(error)

    def _err(self, data: bytes) -> float:
        self._errors.add(data)
        self._error_bytes += len(data)
        return FLOOD_REST_S if self._error_bytes > self._spec.output_limit_bytes else 0.0

    def blamed(self, what: str) -> str:
        said = self._errors.text()
        return f"{self._spec.name} {what}: {said}" if said else f"{self._spec.name} {what}"

    def value(self, turn: TurnContext) -> Any:
        """What the run's result is. Raise CommandFailed for stdout that is not the JSON that it should be."""
        if self._spec.output == "jsonl":
            return self._said(turn)
        text = self._kept.decode("utf-8", "replace")
        if self._spec.output == "json":
            return self._parsed(text)
        if self._bytes > self._spec.output_limit_bytes:
            return {"truncated": True, "bytes": self._bytes, "preview": text[:PREVIEW_CHARS]}
        return text.removesuffix("\n")

    def _said(self, turn: TurnContext) -> Result:
        if self.lines.state is not None:
            turn.state.clear()
            turn.state.update(self.lines.state)
        return self.lines.result

    def _parsed(self, text: str) -> Any:
        if self._bytes > self._spec.output_limit_bytes:
            problem = f"wrote {self._bytes} bytes, more than output_limit_bytes, which is no whole JSON"
            raise CommandFailed(self.blamed(problem))
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise CommandFailed(self.blamed(f"wrote what is not JSON ({error})")) from None
