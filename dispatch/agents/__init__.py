"""What an agent's author imports."""

from dispatch.agents.context import TurnContext
from dispatch.agents.control import Cancelled, Discard, NeedsInput, Result, Retry, Snooze
from dispatch.agents.registry import agent

__all__ = ["Cancelled", "Discard", "NeedsInput", "Result", "Retry", "Snooze", "TurnContext", "agent"]
