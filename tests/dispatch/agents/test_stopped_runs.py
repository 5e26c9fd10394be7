"""What comes of a run that was told to stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dispatch.agents import NeedsInput, Retry, Snooze, TurnContext
from dispatch.agents.runner import Stop
from dispatch.outcomes import (
    CancelledRun,
    HandedBack,
    LeaseGone,
    Outcome,
    Succeeded,
    TimedOut,
)
from tests.dispatch.agents.turn_store import MemoryTurnStore, ended, raising, run_of

WAIT_S = 10.0

STOPPED = [
    (Stop.CANCELLED, CancelledRun(code="cancelled", message="cancelled on request")),
    (Stop.EXPIRED, CancelledRun(code="expired", message="the deadline has passed")),
    (Stop.TIMEOUT, TimedOut(message="the run took longer than its time limit")),
    (Stop.HANDBACK, HandedBack(message="the worker shuts down")),
    (Stop.LOST, LeaseGone()),
]


def stopped_while_running(finish: Callable[[TurnContext], Any], code: str, message: str | None = None) -> Outcome:
    """Run in a thread, stop it once it has begun, and let it go on to `finish`."""
    begun, told = threading.Event(), threading.Event()

    def agent(turn: TurnContext) -> Any:
        begun.set()
        assert told.wait(WAIT_S)
        return finish(turn)

    run = run_of(agent)
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run.run_sync)
        assert begun.wait(WAIT_S)
        run.stop(code, message)
        told.set()
        return future.result(WAIT_S)


@pytest.mark.parametrize(("code", "outcome"), STOPPED)
@pytest.mark.parametrize(
    "finish",
    [
        TurnContext.raise_if_cancelled,
        raising(ValueError("in the way")),
        raising(Retry()),
        raising(Snooze(5)),
        raising(NeedsInput("?")),
    ],
)
def test_a_sync_run_that_raises_after_it_was_told_ends_as_told(
    code: str, outcome: Outcome, finish: Callable[[TurnContext], Any]
) -> None:
    assert stopped_while_running(finish, code) == outcome


@pytest.mark.parametrize("code", [Stop.CANCELLED, Stop.EXPIRED])
def test_a_value_that_came_in_spite_of_a_cancel_is_kept(code: str) -> None:
    assert stopped_while_running(lambda turn: "done", code) == Succeeded(result="done", state={"seen": [1]})


@pytest.mark.parametrize(("code", "outcome"), [pair for pair in STOPPED if pair[0] not in ("cancelled", "expired")])
def test_a_value_after_a_timeout_hand_back_or_lost_lease_is_dropped(code: str, outcome: Outcome) -> None:
    assert stopped_while_running(lambda turn: "partial", code) == outcome


def test_the_first_reason_and_its_message_stay() -> None:
    run = run_of(lambda turn: turn.raise_if_cancelled())
    run.stop(Stop.CANCELLED, "enough\x00")
    run.stop(Stop.TIMEOUT)
    assert run.stopped == "cancelled"
    assert run.run_sync() == CancelledRun(code="cancelled", message="enough\ufffd")


def test_a_lost_lease_outranks_every_other_reason() -> None:
    run = run_of(lambda turn: turn.raise_if_cancelled())
    run.stop(Stop.CANCELLED)
    run.stop(Stop.LOST)
    assert run.stopped == "lost"
    assert run.run_sync() == LeaseGone()


def test_an_unknown_reason_is_refused_and_changes_nothing() -> None:
    run = run_of(lambda turn: 1)
    with pytest.raises(KeyError):
        run.stop("because")
    assert (run.stopped, run.context.cancelled) == (None, False)


def test_an_abandoned_run_ends_with_nothing_to_write_even_if_it_swallows_the_refusal() -> None:
    store = MemoryTurnStore()

    def agent(turn: TurnContext) -> str:
        store.current_epoch = 2
        try:
            turn.emit("late")
        except Exception:
            return "pretends"
        return "wrote"

    assert ended(agent, store) == LeaseGone()
    run = run_of(lambda turn: "done")
    run.fence()
    assert run.run_sync() == LeaseGone()


async def _stopped_async(fn: Callable[[TurnContext, asyncio.Event], Any], code: str) -> Outcome:
    begun = asyncio.Event()

    async def agent(turn: TurnContext) -> Any:
        return await fn(turn, begun)

    run = run_of(agent)
    task = asyncio.create_task(run.run_async())
    await asyncio.wait_for(begun.wait(), WAIT_S)
    await asyncio.to_thread(run.stop, code)
    return await asyncio.wait_for(task, WAIT_S)


async def _sleeps(turn: TurnContext, begun: asyncio.Event) -> str:
    begun.set()
    await asyncio.sleep(60)
    return "slept"


async def _tidies_up(turn: TurnContext, begun: asyncio.Event) -> str:
    try:
        return await _sleeps(turn, begun)
    except asyncio.CancelledError:
        assert turn.cancelled
        return "tidy"


@pytest.mark.parametrize(("code", "outcome"), STOPPED)
def test_an_async_run_is_cancelled_when_it_is_told(code: str, outcome: Outcome) -> None:
    assert asyncio.run(_stopped_async(_sleeps, code)) == outcome


def test_an_async_run_that_returns_when_cancelled_keeps_its_value() -> None:
    assert asyncio.run(_stopped_async(_tidies_up, Stop.CANCELLED)) == Succeeded(result="tidy", state={"seen": [1]})


@pytest.mark.parametrize(("code", "outcome"), STOPPED)
def test_an_async_run_stopped_before_it_began_never_starts(code: str, outcome: Outcome) -> None:
    started: list[int] = []

    async def agent(turn: TurnContext) -> None:
        started.append(1)

    run = run_of(agent)
    run.stop(code)
    assert asyncio.run(run.run_async()) == outcome
    assert started == []


def test_cancelling_the_callers_task_hands_the_turn_back() -> None:
    async def main() -> Outcome:
        begun = asyncio.Event()

        async def agent(turn: TurnContext) -> str:
            return await _sleeps(turn, begun)

        task = asyncio.create_task(run_of(agent).run_async())
        await asyncio.wait_for(begun.wait(), WAIT_S)
        task.cancel()
        return await asyncio.wait_for(task, WAIT_S)

    assert asyncio.run(main()) == HandedBack(message="the worker shuts down")


def test_stopping_a_run_that_has_ended_does_nothing() -> None:
    async def agent(turn: TurnContext) -> int:
        return 1

    run = run_of(agent)
    assert asyncio.run(run.run_async()) == Succeeded(result=1, state={"seen": [1]})
    run.stop(Stop.CANCELLED)


def test_one_loop_holds_many_runs() -> None:
    async def main() -> list[Outcome]:
        gate, count = asyncio.Event(), 0

        async def agent(turn: TurnContext) -> int:
            nonlocal count
            count += 1
            if count == 500:
                gate.set()
            await gate.wait()
            return turn.turn_number

        runs = [run_of(agent, turn_number=number).run_async() for number in range(500)]
        return await asyncio.wait_for(asyncio.gather(*runs), WAIT_S)

    assert asyncio.run(main()) == [Succeeded(result=number, state={"seen": [1]}) for number in range(500)]
