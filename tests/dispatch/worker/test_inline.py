"""One job in the calling thread, through the same claim, run and fenced commit as in a worker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dispatch import states
from dispatch.agents import TurnContext
from dispatch.agents.registry import RegisteredAgent, Registry
from dispatch.models import WorkItem
from dispatch.worker.inline import run_job
from tests.dispatch.agents.turn_store import MemoryTurnStore
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


def run(item: WorkItem, fn: Any = lambda turn: "done", *, keep: bool = False) -> str | None:
    agents = Registry()
    agents.add(RegisteredAgent(name=world.AGENT, fn=fn, is_async=asyncio.iscoroutinefunction(fn)))
    return run_job(
        authority=world.authority(),
        registry=agents,
        store=MemoryTurnStore(),
        serves=world.SERVES,
        job_id=item.job_id,
        ttl_s=60,
        renew_s=20,
        keep=keep,
    )


@pytest.mark.parametrize("keep", [True, False])
def test_a_job_runs_here_and_its_result_is_stored(keep: bool) -> None:
    item = world.add("s")
    assert run(item, keep=keep) == states.SUCCEEDED
    assert world.outcome_of(item).result == "done"
    world.check()


def test_an_async_agent_runs_here_too() -> None:
    async def agent(turn: TurnContext) -> str:
        await asyncio.sleep(0)
        return turn.task

    item = world.add("s")
    assert run(item, agent) == states.SUCCEEDED
    assert world.outcome_of(item).result == item.task


def test_an_error_leaves_the_job_waiting_for_its_retry() -> None:
    def agent(turn: TurnContext) -> None:
        raise ValueError("no")

    item = world.add("s")
    assert run(item, agent) == states.READY
    assert world.fresh(item).attempt == 1
    assert run(item) is None, "it is not due yet"


def test_what_cannot_be_claimed_is_not_run() -> None:
    first, behind = world.add("s"), world.add("s")
    assert run(behind) is None
    assert run(first) == states.SUCCEEDED
    assert run(first) is None
    assert world.fresh(behind).status == states.READY


def test_a_run_that_lost_its_lease_meanwhile_writes_nothing() -> None:
    item = world.add("s")

    def agent(turn: TurnContext) -> str:
        world.rescue(item)
        return "too late"

    assert run(item, agent) is None
    assert (world.fresh(item).status, world.fresh(item).attempt) == (states.READY, 1)
    world.check()
