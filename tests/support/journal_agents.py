"""The agents that acceptance tests run, loaded by real workers through AGENT_MODULES; each run leaves journal lines."""

from __future__ import annotations

import asyncio
import os
import signal
import time
import uuid
from collections.abc import Callable
from typing import Any

from dispatch.agents import NeedsInput, Retry, TurnContext, agent
from tests.support import journal


def line(event: str, turn: TurnContext, nonce: str, **more: Any) -> None:
    journal.write(event, turn.job_id, turn.session_id, nonce, **more)


def begin(turn: TurnContext) -> str:
    """Write what this run can see of its session, then count the turn in the session's state."""
    nonce = uuid.uuid4().hex
    seen, last = turn.state.get("n", 0), turn.state.get("last")
    line("begin", turn, nonce, task=turn.task, attempt=turn.attempt, number=turn.turn_number, n=seen, last=last)
    turn.state["n"], turn.state["last"] = seen + 1, nonce
    return nonce


def finish(turn: TurnContext, nonce: str, **more: Any) -> dict[str, Any]:
    line("end", turn, nonce)
    return {"nonce": nonce, "pid": os.getpid(), "n": turn.state["n"], **more}


def run_number(turn: TurnContext) -> int:
    """1 for the job's first run, 2 for the next: counted here, and not by the product's attempt."""
    descriptor = os.open(f"{os.environ[journal.VARIABLE]}.{turn.job_id}", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, b".")
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def sleep_on(seconds: float, each: Callable[[], None] = lambda: None) -> None:
    """Sleep in short naps, so that a frozen process sleeps by the clock and not by its own time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        each()
        time.sleep(0.05)


@agent("note")
def note(turn: TurnContext) -> dict[str, Any]:
    return finish(turn, begin(turn))


@agent("wait")
def wait(turn: TurnContext) -> dict[str, Any]:
    """Wait payload.s seconds; stop when told to."""
    nonce = begin(turn)

    def listen() -> None:
        if turn.cancelled:
            line("told", turn, nonce)
            turn.raise_if_cancelled()

    sleep_on(float(turn.payload.get("s", 1)), listen)
    return finish(turn, nonce)


def _deaf(turn: TurnContext) -> dict[str, Any]:
    """Wait payload.s seconds (payload.then in later runs) and look at nothing; then one durable step."""
    nonce = begin(turn)
    first = float(turn.payload.get("s", 1))
    sleep_on(first if run_number(turn) == 1 else float(turn.payload.get("then", first)))
    line("awake", turn, nonce)
    turn.step("effect", line, "effect", turn, nonce)
    return finish(turn, nonce)


agent("deaf")(_deaf)
agent("deaf_1s", stop_grace_s=1)(_deaf)


@agent("hold")
async def hold(turn: TurnContext) -> dict[str, Any]:
    """As wait, async: one process holds many."""
    nonce = begin(turn)
    await asyncio.sleep(float(turn.payload.get("s", 1)))
    return finish(turn, nonce)


@agent("stay")
async def stay(turn: TurnContext) -> dict[str, Any]:
    """Return a value although it was cancelled."""
    nonce = begin(turn)
    try:
        await asyncio.sleep(float(turn.payload.get("s", 1)))
    except asyncio.CancelledError:
        return finish(turn, nonce, stayed=True)
    return finish(turn, nonce)


@agent("boom")
def boom(turn: TurnContext) -> dict[str, Any]:
    nonce = begin(turn)
    if run_number(turn) <= int(turn.payload.get("times", 1_000_000)):
        line("boom", turn, nonce)
        raise ValueError("boom")
    return finish(turn, nonce)


@agent("again")
def again(turn: TurnContext) -> dict[str, Any]:
    """Ask once for another run after payload.after seconds."""
    nonce = begin(turn)
    if run_number(turn) == 1:
        line("again", turn, nonce)
        raise Retry(after=float(turn.payload["after"]))
    return finish(turn, nonce)


@agent("ask")
def ask(turn: TurnContext) -> dict[str, Any]:
    nonce = begin(turn)
    if turn.reply is None:
        line("ask", turn, nonce)
        raise NeedsInput("which colour?", **turn.payload.get("terms", {}))
    return finish(turn, nonce, reply=turn.reply)


@agent("die")
def die(turn: TurnContext) -> dict[str, Any]:
    """Take the whole worker process down in the first payload.times runs."""
    nonce = begin(turn)
    if run_number(turn) <= int(turn.payload.get("times", 1_000_000)):
        os.kill(os.getpid(), signal.SIGKILL)
    return finish(turn, nonce)


@agent("talk")
def talk(turn: TurnContext) -> dict[str, Any]:
    """Emit a line every few milliseconds, and listen to nobody: payload.s seconds in the first run, then one."""
    nonce = begin(turn)
    end = time.monotonic() + (float(turn.payload["s"]) if run_number(turn) == 1 else 1)
    while time.monotonic() < end:
        turn.emit(f"{nonce}\n")
        time.sleep(0.01)
    return finish(turn, nonce)


@agent("look_around")
def look_around(turn: TurnContext) -> dict[str, Any]:
    """What this process sees of the variables in payload.names."""
    return finish(turn, begin(turn), seen={name: os.environ.get(name) for name in turn.payload["names"]})


def _trace(turn: TurnContext, nonce: str, child: str) -> dict[str, Any]:
    from opentelemetry import trace

    current = f"{trace.get_current_span().get_span_context().span_id:016x}"
    return finish(turn, nonce, traceparent=turn.traceparent, current=current, child=child)


@agent("traced")
def traced(turn: TurnContext) -> dict[str, Any]:
    """Dispatch a child; what it is told of its trace, and what OpenTelemetry finds."""
    return _trace(turn, begin(turn), turn.dispatch("do it", agent_name="note"))


@agent("atraced")
async def atraced(turn: TurnContext) -> dict[str, Any]:
    return _trace(turn, begin(turn), await turn.adispatch("do it", agent_name="note"))


ODD: dict[str, Callable[[], object]] = {
    "nul": lambda: "a\x00b",
    "surrogate": lambda: "a\ud800b",
    "nan": lambda: {"x": float("nan")},
    "big": lambda: "x" * 5_000_000,
    "object": object,
}


@agent("odd", max_attempts=1)
def odd(turn: TurnContext) -> object:
    """Return, or raise with, what cannot be stored as it is."""
    nonce = begin(turn)
    value = ODD[turn.payload["odd"]]()
    line("end", turn, nonce)
    if turn.payload.get("raise"):
        raise RuntimeError(value)
    return value
