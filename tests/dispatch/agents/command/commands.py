"""Commands for tests, run as the agents of an agents.toml over the turn store in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dispatch.agents.command.spec import Ground
from dispatch.agents.registry import RegisteredAgent, load_agents
from dispatch.agents.runner import TurnRun
from dispatch.outcomes import Outcome
from tests.dispatch.agents.turn_store import MemoryTurnStore, lease
from tests.support.processes import until

WAIT_S = 20.0
SECRET = "OUR_SECRET"


def ground(place: Path) -> Ground:
    return Ground(workdirs=place / "workdirs", is_secret=SECRET.__eq__, set_always={"ROLE": "client"})


def declared(place: Path, *argv: str, **keys: Any) -> RegisteredAgent:
    """The agent `tested` of a file with these keys."""
    lines = [f"{key} = {toml(value)}" for key, value in {"argv": list(argv), **keys}.items()]
    file = place / "agents.toml"
    file.write_text("\n".join(["[agents.tested]", 'kind = "command"', *lines]))
    found = load_agents([], file, ground(place)).get("tested")
    assert found is not None
    return found


def toml(value: object) -> str:
    """Texts, numbers and lists are written as in JSON."""
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{" + ", ".join(f"{key} = {toml(inner)}" for key, inner in value.items()) + "}"


def run(agent: RegisteredAgent, store: MemoryTurnStore | None = None, **changes: Any) -> Outcome:
    return asyncio.run(TurnRun(lease(**changes), agent, store or MemoryTurnStore()).run_async())


def stopped(
    agent: RegisteredAgent, when: Callable[[], Any], how: Callable[[TurnRun], None], **changes: Any
) -> tuple[Outcome, TurnRun]:
    """Run it, and do `how` to the run once `when` says so."""
    one = TurnRun(lease(**changes), agent, MemoryTurnStore())

    async def both() -> Outcome:
        running = asyncio.create_task(one.run_async())
        await asyncio.to_thread(until, when, WAIT_S, "the command is where it is stopped")
        await asyncio.to_thread(how, one)
        return await asyncio.wait_for(running, WAIT_S)

    return asyncio.run(both()), one


def text_of(store: MemoryTurnStore) -> str:
    return "".join(data["text"] for kind, data in store.chunks if kind == "text")
