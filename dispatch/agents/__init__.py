"""What an agent's author imports."""

from dispatch.agents.checks import check
from dispatch.agents.context import TurnContext
from dispatch.agents.control import Cancelled, Discard, NeedsInput, Result, Retry, Snooze
from dispatch.agents.goals.view import Goal
from dispatch.agents.registry import agent

__all__ = [
    "Cancelled",
    "Discard",
    "Goal",
    "NeedsInput",
    "Result",
    "Retry",
    "Snooze",
    "TurnContext",
    "agent",
    "check",
]
