"""The agents that the benchmarks run; workers load this module by AGENT_MODULES."""

from __future__ import annotations

import asyncio
import os
import time

from dispatch.agents import TurnContext, agent


@agent("noop")
def noop(turn: TurnContext) -> None:
    """Return at once."""


@agent("stamp")
def stamp(turn: TurnContext) -> None:
    """Append its task and the time of its first line to the file that the payload names."""
    now = time.monotonic()
    line = f"{turn.task} {now!r}\n".encode()
    file = os.open(turn.payload["file"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line)
    finally:
        os.close(file)


@agent("hold")
async def hold(turn: TurnContext) -> None:
    """Wait on the event loop for as many seconds as the payload says."""
    await asyncio.sleep(turn.payload["seconds"])
