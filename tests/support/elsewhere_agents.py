"""One agent and one check more than the journal's: loaded by some processes of a test and not by others."""

from __future__ import annotations

from typing import Any

from dispatch.agents import TurnContext, agent, check
from tests.support.journal_agents import begin, finish


@agent("elsewhere")
def elsewhere(turn: TurnContext) -> dict[str, Any]:
    return finish(turn, begin(turn))


@check("elsewhere")
def is_elsewhere(turn: TurnContext, result: Any) -> bool:
    return True
