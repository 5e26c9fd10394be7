"""Where turns run."""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import Any

from dispatch.agents import TurnContext
from dispatch.agents.runner import Stop
from dispatch.outcomes import AgentFailed, CancelledRun, Outcome, Succeeded
from dispatch.worker.runners import Runners
from dispatch.worker.settlement import Slot
from tests.dispatch.agents.turn_store import MemoryTurnStore
from tests.dispatch.worker.parts import WAIT_S, slot

Ended = queue.Queue[tuple[Slot, Outcome]]


def start(runners: Runners, one: Slot, ended: Ended) -> None:
    runners.start(one, lambda slot, outcome: ended.put((slot, outcome)))


def thread_name(turn: TurnContext) -> str:
    return threading.current_thread().name


def result_of(ended: Ended) -> Any:
    outcome = ended.get(timeout=WAIT_S)[1]
    assert isinstance(outcome, Succeeded)
    return outcome.result


def test_a_thread_is_used_again_once_its_turn_has_ended() -> None:
    runners, ended = Runners(MemoryTurnStore()), Ended()
    names = []
    for _ in range(50):
        start(runners, slot(thread_name), ended)
        names.append(result_of(ended))
    assert len(set(names)) < 10


def test_turns_at_once_have_threads_of_their_own_and_the_store_is_released_in_each() -> None:
    store = MemoryTurnStore()
    runners, ended, together = Runners(store), Ended(), threading.Barrier(5)

    def agent(turn: TurnContext) -> str:
        together.wait(WAIT_S)
        return threading.current_thread().name

    for _ in range(5):
        start(runners, slot(agent), ended)
    assert len({result_of(ended) for _ in range(5)}) == 5
    assert not store.held


def test_a_turn_that_raises_leaves_its_thread_fit_for_the_next() -> None:
    runners, ended = Runners(MemoryTurnStore()), Ended()

    def agent(turn: TurnContext) -> None:
        raise SystemExit(3)

    start(runners, slot(agent), ended)
    assert isinstance(ended.get(timeout=WAIT_S)[1], AgentFailed)
    start(runners, slot(thread_name), ended)
    assert result_of(ended)


def test_async_turns_share_one_loop_and_run_side_by_side() -> None:
    runners, ended = Runners(MemoryTurnStore()), Ended()
    begun: list[str] = []
    go = asyncio.Event()

    async def agent(turn: TurnContext) -> str:
        begun.append(thread_name(turn))
        if len(begun) == 100:
            go.set()
        await go.wait()
        return thread_name(turn)

    for _ in range(100):
        start(runners, slot(agent), ended)
    assert {result_of(ended) for _ in range(100)} == {"agents-loop"}


def test_a_stop_reaches_an_async_turn_as_its_cancellation() -> None:
    runners, ended, begun = Runners(MemoryTurnStore()), Ended(), threading.Event()

    async def agent(turn: TurnContext) -> None:
        begun.set()
        await asyncio.sleep(WAIT_S)

    one = slot(agent)
    start(runners, one, ended)
    assert begun.wait(WAIT_S)
    one.run.stop(Stop.CANCELLED)
    told, outcome = ended.get(timeout=WAIT_S)
    assert told is one
    assert isinstance(outcome, CancelledRun)
