"""Tools that tests give to models."""

from __future__ import annotations

import threading
import time

from pydantic_ai import ModelRetry, RunContext

from dispatch.agents import Discard, NeedsInput, TurnContext

NOT_A_FUNCTION = 3


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: the first
        b: the second
    """
    return a + b


def remember(turn: TurnContext, fact: str) -> str:
    """Keep a fact for the whole session."""
    turn.state.setdefault("facts", []).append(fact)
    turn.emit(f"[{fact}]")
    return f"kept in {threading.current_thread().name.partition('-')[0]}"


async def recall(turn: TurnContext) -> list[str]:
    """Tell the facts."""
    facts: list[str] = turn.state.get("facts", [])
    return facts


def whose(context: RunContext[TurnContext]) -> str:
    """Tell the tenant."""
    return context.deps.tenant


def ask(turn: TurnContext, question: str) -> str:
    """Ask a person."""
    if turn.reply is None:
        raise NeedsInput(question)
    return turn.reply


def pick(colour: str) -> str:
    """Pick a colour."""
    if colour != "blue":
        raise ModelRetry("only blue is there")
    return colour


def watch(turn: TurnContext) -> str:
    """Watch until told to stop."""
    turn.emit("watching")
    while not turn.cancelled:
        time.sleep(0.01)
    turn.raise_if_cancelled()
    return "never"


def give_up() -> str:
    """Give up."""
    raise Discard("the tool gave up")


def boom() -> str:
    """Fail."""
    raise RuntimeError("the tool broke")
