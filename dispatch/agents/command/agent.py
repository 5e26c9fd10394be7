"""The agent that runs a command: an async function of its turn, so that waiting for it takes no thread."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from typing import Any

from dispatch.agents.clean import clean_text
from dispatch.agents.command.heard import CommandFailed, Heard
from dispatch.agents.command.process import Plan, Running, start
from dispatch.agents.command.spec import ERROR, CommandSpec, Ground
from dispatch.agents.command.surroundings import environment, leave, session_directory, stdin_bytes
from dispatch.agents.context import TurnContext
from dispatch.agents.control import Discard, Retry, Snooze
from dispatch.agents.patience import undisturbed
from dispatch.errors import LeaseLost

LEASE_OVER = "lease"  # the supervisor's word for a lease that nobody renewed


class CommandAgent:
    """Called with a turn: runs the command once and returns or raises what came of it."""

    def __init__(self, spec: CommandSpec, ground: Ground, grace_s: float) -> None:
        self.__doc__ = f"Runs the command {spec.name}."
        self.spec, self._ground, self._grace_s = spec, ground, grace_s

    async def __call__(self, turn: TurnContext) -> Any:
        reply = await turn.areply()
        plan, running = await self._start(turn, reply)
        turn.on_renewal(running.hold_until)
        heard = Heard(self.spec, turn, running)
        try:
            await heard.until_ended()
        except asyncio.CancelledError:
            done = running.exit_code is not None and running.ended_for in (None, "exited")
            await undisturbed(heard.stop())
            if not done:
                raise
        except BaseException:
            await undisturbed(heard.stop())
            raise
        if plan.alone and not turn.lease_gone and running.ended_for != LEASE_OVER:
            leave(plan.cwd)  # while the lease is held no other run of the session can be in it
        return self._outcome(turn, running, heard)

    async def _start(self, turn: TurnContext, reply: str | None) -> tuple[Plan, Running]:
        loop = asyncio.get_running_loop()
        try:
            plan = await loop.run_in_executor(None, self._plan, turn, reply)
            return plan, await start(plan)
        except OSError as error:
            raise self._not_started(error.errno, in_place=error.filename is not None) from None

    def _plan(self, turn: TurnContext, reply: str | None) -> Plan:
        spec, lease, key = self.spec, turn.lease, turn.idempotency_key
        return Plan(
            argv=spec.arguments(clean_text(turn.task)),
            env=environment(
                spec,
                lease,
                key=key,
                reply=reply,
                traceparent=turn.traceparent,
                worker=os.environ,
                always=self._ground.set_always,
                goal=turn.goal,
            ),
            cwd=spec.cwd or session_directory(self._ground.workdirs, lease),
            alone=spec.cwd is None,
            stdin=stdin_bytes(
                spec, lease, key=key, checkpoint=turn.last_checkpoint, reply=reply, state=turn.state, goal=turn.goal
            ),
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


def _ended_by(code: int | None) -> str:
    if code is None:
        return "was ended together with its supervisor"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
