"""The demo agent: what runs when nothing is configured, so that a first try works offline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dispatch.agents.context import TurnContext

NAME = "echo"


def echo(turn: TurnContext) -> dict[str, Any]:
    """Demo agent: answers with its task and turn number, and counts its turns in the session's state."""
    seen = turn.state.get("turns")
    turn.state["turns"] = (seen if isinstance(seen, int) else 0) + 1
    return {"echo": turn.task, "turn": turn.turn_number, "demo": True}
