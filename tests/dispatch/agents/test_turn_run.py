"""One run of an agent, whatever it does, ends with an outcome."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from dispatch.agents import Cancelled, Discard, NeedsInput, Result, Retry, Snooze, TurnContext
from dispatch.agents.registry import RegisteredAgent
from dispatch.agents.runner import TurnRun
from dispatch.errors import LeaseLost
from dispatch.outcomes import (
    AgentFailed,
    ChildrenAwaited,
    Discarded,
    InputAsked,
    LeaseGone,
    Outcome,
    RetryAsked,
    Snoozed,
    Succeeded,
)
from tests.dispatch.agents.turn_store import MemoryTurnStore, araising, ended, lease, raising, run_of


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class Endless(BaseException):
    pass


@pytest.mark.parametrize("value", ["text", {"a": [1]}, None, 3])
def test_a_returned_value_is_the_result(value: object) -> None:
    assert ended(lambda turn: value) == Succeeded(result=value, state={"seen": [1]})


def test_a_result_may_carry_a_message() -> None:
    assert ended(lambda turn: Result({"a": 1}, message="two\x00 of three")) == Succeeded(
        result={"a": 1}, state={"seen": [1]}, message="two\ufffd of three"
    )


def test_changed_state_is_handed_on_as_a_copy() -> None:
    def agent(turn: TurnContext) -> None:
        turn.state["seen"].append(2)

    run = run_of(agent)
    outcome = run.run_sync()
    run.context.state["seen"].append(3)
    assert isinstance(outcome, Succeeded)
    assert outcome.state == {"seen": [1, 2]}


def test_what_cannot_be_stored_is_cleaned_and_marked() -> None:
    def agent(turn: TurnContext) -> Any:
        turn.state["x"] = float("nan")
        return object()

    assert ended(agent) == Succeeded(
        result={"_cleaned": ["object"], "value": "<object>"},
        state={"seen": [1], "x": None},
        message="session state cleaned: not_finite",
    )


def test_a_state_that_is_no_object_any_more_fails_the_turn() -> None:
    def agent(turn: TurnContext) -> None:
        turn.state = []  # type: ignore[assignment]

    assert ended(agent) == AgentFailed(message="the session state is not an object")


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Retry(), RetryAsked()),
        (Retry(after=3), RetryAsked(after_s=3.0)),
        (Snooze(after=2), Snoozed(after_s=2.0)),
        (Discard("no\x00 use"), Discarded(reason="no\ufffd use")),
        (NeedsInput("which?", ["a"]), InputAsked(question="which?", choices=("a",))),
        (ValueError("boom"), AgentFailed(message="ValueError: boom")),
        (ValueError("a\x00b\ud800"), AgentFailed(message="ValueError: a\ufffdb\ufffd")),
        (Unreadable(), AgentFailed(message="Unreadable")),
        (SystemExit(3), AgentFailed(message="SystemExit: 3")),
        (KeyboardInterrupt(), AgentFailed(message="KeyboardInterrupt")),
        (GeneratorExit(), AgentFailed(message="GeneratorExit")),
        (MemoryError(), AgentFailed(message="MemoryError")),
        (Endless("x"), AgentFailed(message="Endless: x")),
        (BaseExceptionGroup("g", [Retry(after=1)]), RetryAsked(after_s=1.0)),
        (LeaseLost(), LeaseGone()),
    ],
)
def test_everything_raised_has_an_outcome_sync_and_async(error: BaseException, outcome: Outcome) -> None:
    assert ended(raising(error)) == outcome
    assert asyncio.run(run_of(araising(error)).run_async()) == outcome


@pytest.mark.parametrize("error", [Cancelled(), asyncio.CancelledError()])
def test_an_agent_that_cancels_itself_has_failed(error: BaseException) -> None:
    for outcome in (ended(raising(error)), asyncio.run(run_of(araising(error)).run_async())):
        assert isinstance(outcome, AgentFailed)
        assert "nobody had asked" in outcome.message


def test_endless_recursion_has_an_outcome() -> None:
    def agent(turn: TurnContext) -> Any:
        return agent(turn)

    outcome = ended(agent)
    assert isinstance(outcome, AgentFailed)
    assert outcome.message.startswith("RecursionError")


def test_an_error_text_is_cut_to_four_kib() -> None:
    outcome = ended(raising(ValueError("x" * 5_000_000)))
    assert isinstance(outcome, AgentFailed)
    assert len(outcome.message.encode()) == 4096


def test_the_cause_of_a_retry_is_its_message() -> None:
    def agent(turn: TurnContext) -> Any:
        try:
            raise TimeoutError("upstream")
        except TimeoutError as error:
            raise Retry(after=1) from error

    assert ended(agent) == RetryAsked(after_s=1.0, message="TimeoutError: upstream")


def test_a_sync_agent_that_returns_a_coroutine_is_told_so() -> None:
    async def work() -> int:
        return 1

    outcome = ended(lambda turn: work())
    assert isinstance(outcome, AgentFailed)
    assert "async def" in outcome.message


def test_the_log_shows_where_and_not_what(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="dispatch.agents"):
        ended(raising(ValueError("the secret task")), task="the secret task")
    (record,) = caplog.records
    assert (record.getMessage(), record.levelname) == ("agent raised", "WARNING")
    assert record.__dict__["job_id"] == "orch-" + "a" * 32
    assert "in agent" in caplog.text
    assert "ValueError" in caplog.text
    assert "secret" not in caplog.text


def test_what_an_agent_asks_for_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    ended(raising(Retry()))
    ended(raising(NeedsInput("?")))
    assert caplog.records == []


def test_waiting_for_children_suspends() -> None:
    store = MemoryTurnStore()

    def agent(turn: TurnContext) -> Any:
        handle = turn.dispatch("child")
        try:
            return [child["result"] for child in turn.wait(handle)]
        except Exception:
            return "swallowed"

    assert ended(agent, store) == ChildrenAwaited(job_ids=("orch-call:1",))
    store.end("orch-call:1", "succeeded", 5)
    assert ended(agent, store, resumed=True) == Succeeded(result=[5], state={"seen": [1]})


def test_a_sync_run_gives_back_what_the_agent_left_open_in_its_thread() -> None:
    store = MemoryTurnStore()
    assert ended(lambda turn: store.history(lease()), store) == Succeeded(result=[], state={"seen": [1]})
    assert store.held == set()


def test_a_store_that_cannot_be_released_does_not_take_the_outcome_away(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(MemoryTurnStore):
        def release(self) -> None:
            raise OSError("gone")

    assert ended(lambda turn: 1, Broken()) == Succeeded(result=1, state={"seen": [1]})
    assert [record.getMessage() for record in caplog.records] == ["store not released"]


def test_a_run_says_how_long_it_took() -> None:
    times = iter([10.0, 12.5])
    agent = RegisteredAgent(name="tested", fn=lambda turn: 1, is_async=False)
    run = TurnRun(lease(), agent, MemoryTurnStore(), lambda: next(times))
    assert run.run_s is None
    run.run_sync()
    assert run.run_s == 2.5
