"""The agent that runs a command: an async function of its turn, so that waiting for it takes no thread."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
from collections.abc import Coroutine
from typing import Any

from dispatch.agents.command.lines import BadLine, Lines
from dispatch.agents.command.output import PipeReader, Streamed, Tail
from dispatch.agents.command.process import Plan, Running, start
from dispatch.agents.command.spec import ERROR, CommandSpec, Ground
from dispatch.agents.command.surroundings import environment, session_directory, stdin_bytes
from dispatch.agents.context import TurnContext
from dispatch.agents.control import Discard, Result, Retry, Snooze
from dispatch.errors import LeaseLost

STDERR_BYTES = 2048
PREVIEW_CHARS = 16 * 1024
FLOOD_REST_S = 0.002
LAST_WORDS_S = 1.0
LEASE_OVER = "lease"  # the supervisor's word for a lease that nobody renewed


class CommandFailed(Exception):
    """The command could not be started, or ended otherwise than by a code that the file names."""


class CommandAgent:
    """Called with a turn: runs the command once and returns or raises what came of it."""

    def __init__(self, spec: CommandSpec, ground: Ground, grace_s: float) -> None:
        self.__doc__ = f"Runs the command {spec.name}."
        self.spec, self._ground, self._grace_s = spec, ground, grace_s

    async def __call__(self, turn: TurnContext) -> Any:
        reply = await turn.areply()
        running = await self._start(turn, reply)
        turn.on_renewal(running.hold_until)
        heard = Heard(self.spec, turn, running)
        try:
            await heard.until_ended()
        except asyncio.CancelledError:
            done = running.exit_code is not None and running.ended_for in (None, "exited")
            await _undisturbed(heard.stop())
            if not done:
                raise
        except BaseException:
            await _undisturbed(heard.stop())
            raise
        return self._outcome(turn, running, heard)

    async def _start(self, turn: TurnContext, reply: str | None) -> Running:
        loop = asyncio.get_running_loop()
        try:
            return await start(await loop.run_in_executor(None, self._plan, turn, reply))
        except OSError as error:
            raise self._not_started(error.errno, in_place=error.filename is not None) from None

    def _plan(self, turn: TurnContext, reply: str | None) -> Plan:
        spec, lease, key = self.spec, turn.lease, turn.idempotency_key
        return Plan(
            argv=spec.arguments(turn.task.replace("\0", "\ufffd")),
            env=environment(spec, lease, key=key, reply=reply, worker=os.environ, always=self._ground.set_always),
            cwd=spec.cwd or session_directory(self._ground.workdirs, lease),
            alone=spec.cwd is None,
            stdin=stdin_bytes(spec, lease, key=key, checkpoint=turn.last_checkpoint, reply=reply),
            grace_s=self._grace_s,
        )

    def _not_started(self, number: int | None, *, in_place: bool = False) -> Exception:
        """`in_place`: it is the directory that is not as it should be; its path is nobody's business."""
        if number == errno.E2BIG:
            return Discard(f"{self.spec.name} cannot be started: task and variables are too long for an argument list")
        where = " in its directory" if in_place else ""
        return CommandFailed(f"{self.spec.name} cannot be started{where}: {os.strerror(number or errno.EIO)}")

    def _outcome(self, turn: TurnContext, running: Running, heard: Heard) -> Any:
        if running.ended_for == LEASE_OVER:
            raise LeaseLost
        if running.failed_to_start is not None:
            raise self._not_started(running.failed_to_start)
        code = running.exit_code
        if code is None or code < 0:
            raise CommandFailed(heard.blamed(_ended_by(code)))
        if heard.lines.ask is not None:
            raise heard.lines.ask
        match self.spec.endings.get(code, ERROR):
            case "success":
                return heard.value(turn)
            case "retry":
                raise Retry(self.spec.retry_after_s) from CommandFailed(
                    heard.blamed(f"asked for a retry by exit code {code}")
                )
            case "snooze":
                raise Snooze(self.spec.snooze_s)
            case "discard":
                raise Discard(heard.blamed(f"ended with exit code {code}"))
        raise CommandFailed(heard.blamed(f"ended with exit code {code}"))


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


async def _undisturbed(work: Coroutine[Any, Any, None]) -> None:
    """Await it to its end although this task may be cancelled meanwhile, as by a loop that is closed."""
    task = asyncio.create_task(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    task.result()


def _ended_by(code: int | None) -> str:
    if code is None:
        return "was ended together with its supervisor"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
