"""Run a validation's command under the supervisor that agents' commands have: ended with all that it started."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from dataclasses import dataclass

from dispatch.agents.clean import clean_text
from dispatch.agents.command.agent import LEASE_OVER
from dispatch.agents.command.heard import FLOOD_REST_S
from dispatch.agents.command.output import PipeReader, Tail
from dispatch.agents.command.process import Plan, Running, start
from dispatch.agents.context import TurnContext
from dispatch.agents.patience import undisturbed
from dispatch.errors import LeaseLost

OUTPUT_BYTES = 16 * 1024


class ValidationNotRun(Exception):
    """A validation could not be run: whether the goal is reached is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """What became of a command. `exit_code` None: it was ended because its time was over; negative: by that signal."""

    exit_code: int | None
    output: str


class _Said:
    """The last bytes of what it said, on both pipes, in the order in which they came."""

    def __init__(self, running: Running) -> None:
        self._tail, self._bytes = Tail(OUTPUT_BYTES), 0
        self._readers = [PipeReader(pipe, self._take) for pipe in (running.stdout, running.stderr)]

    def _take(self, data: bytes) -> float:
        self._tail.add(data)
        self._bytes += len(data)
        return FLOOD_REST_S if self._bytes > OUTPUT_BYTES else 0.0

    def whole(self) -> str:
        for reader in self._readers:
            reader.finish()
        cut = f"[the last {OUTPUT_BYTES} of {self._bytes} bytes]\n" if self._bytes > OUTPUT_BYTES else ""
        return cut + clean_text(self._tail.text())


async def run_command(turn: TurnContext, plan: Plan, *, timeout_s: float) -> Ended:
    """Run it to its end, or end it when its time is over. A cancel ends it before it is raised.

    Raise ValidationNotRun when it cannot be started, LeaseLost when it was ended with the turn's lease.
    """
    name = plan.argv[0].rpartition("/")[2]
    try:
        running = await start(plan)
    except OSError as error:
        raise ValidationNotRun(_not_started(name, error.errno)) from None
    turn.on_renewal(running.hold_until)
    said, late = _Said(running), False
    try:
        await asyncio.wait_for(running.ended(), timeout_s)
    except TimeoutError:
        late = True
        await undisturbed(running.end())
    except BaseException:
        await undisturbed(running.end())
        raise
    finally:
        output = said.whole()
    if running.ended_for == LEASE_OVER:
        raise LeaseLost(job_id=turn.job_id)
    if running.failed_to_start is not None:
        raise ValidationNotRun(_not_started(name, running.failed_to_start))
    if late:
        return Ended(exit_code=None, output=f"{name} was ended after {timeout_s:g} s\n{output}")
    if running.exit_code is None:
        raise ValidationNotRun(f"validation {name} was ended together with its supervisor")
    return Ended(exit_code=running.exit_code, output=_signalled(name, running.exit_code) + output)


def _not_started(name: str, number: int | None) -> str:
    return f"validation {name} cannot be started: {os.strerror(number or errno.EIO)}"


def _signalled(name: str, code: int) -> str:
    if code >= 0:
        return ""
    known = {s.value: s.name for s in signal.Signals}
    return f"{name} was ended by {known.get(-code, f'signal {-code}')}\n"
