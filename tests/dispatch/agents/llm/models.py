"""Models for tests, run as the agents of an agents.toml over the turn store in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dispatch.agents.command.spec import Ground
from dispatch.agents.registry import RegisteredAgent, load_agents
from dispatch.agents.runner import TurnRun
from dispatch.outcomes import Outcome, Succeeded
from tests.dispatch.agents.command.commands import SECRET, toml
from tests.dispatch.agents.turn_store import MemoryTurnStore, lease

KEY_NAME, KEY = "MODEL_KEY", "sk-very-secret"
TOOLS = "tests.support.model_tools"


def ground(place: Path, **secrets: str) -> Ground:
    return Ground(workdirs=place / "workdirs", is_secret=SECRET.__eq__, secret={KEY_NAME: KEY, **secrets}.get)


def declared(place: Path, url: str | None, **keys: Any) -> RegisteredAgent:
    """The agent `tested` of a file with these keys; tools are named in the module of the tests' tools."""
    keys = {"model": "small", **({"base_url": url} if url else {}), **keys}
    if isinstance(keys.get("tools"), list):
        keys["tools"] = [name if ":" in name else f"{TOOLS}:{name}" for name in keys["tools"]]
    file = place / "agents.toml"
    lines = [f"{key} = {toml(value)}" for key, value in keys.items()]
    file.write_text("\n".join(["[agents.tested]", 'kind = "llm"', *lines]))
    found = load_agents([], file, ground(place)).get("tested")
    assert found is not None
    return found


def run(agent: RegisteredAgent, store: MemoryTurnStore | None = None, **changes: Any) -> Outcome:
    changes = {"state": {}, **changes}
    return asyncio.run(TurnRun(lease(**changes), agent, store or MemoryTurnStore()).run_async())


def done(outcome: Outcome) -> Succeeded:
    assert isinstance(outcome, Succeeded), outcome
    return outcome


def progress_of(store: MemoryTurnStore) -> list[tuple[float, str]]:
    return [(data["done"], data["message"]) for kind, data in store.chunks if kind == "progress"]
