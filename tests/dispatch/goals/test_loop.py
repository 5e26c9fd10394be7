"""The loop over a store in memory: what an agent sees, what is committed, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dispatch.agents import Discard, NeedsInput, Result, Retry, TurnContext
from dispatch.agents.registry import RegisteredAgent
from dispatch.agents.runner import Stop
from dispatch.outcomes import (
    AgentFailed,
    CancelledRun,
    ChildrenAwaited,
    Discarded,
    HandedBack,
    InputAsked,
    LeaseGone,
    Missed,
    RetryAsked,
    Snoozed,
    Succeeded,
    TimedOut,
)
from tests.dispatch.agents.turn_store import MemoryTurnStore
from tests.dispatch.goals.goals import ended, goals, looped

Check = Callable[[TurnContext, Any], Any]


def at_least(n: int) -> Check:
    def check(turn: TurnContext, result: Any) -> bool | str:
        assert turn.goal is not None
        return turn.goal.iteration >= n or f"{turn.goal.iteration} < {n}"

    return check


def number(turn: TurnContext) -> Any:
    assert turn.goal is not None
    turn.state["n"] = turn.state.get("n", 0) + 1
    return {"at": turn.goal.iteration}


async def anumber(turn: TurnContext) -> Any:
    return number(turn)


@pytest.fixture(params=["sync", "async"])
def sort(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def of_sort(sort: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    if sort == "sync":
        return fn

    async def afn(turn: TurnContext) -> Any:
        return fn(turn)

    return afn


CHECK = {"check": "enough"}


def test_it_runs_until_its_check_passes_and_answers_with_the_last_result(sort: str, tmp_path: Path) -> None:
    seen = []

    def agent(turn: TurnContext) -> Any:
        assert turn.goal is not None
        seen.append((turn.goal.iteration, turn.goal.feedback, turn.goal.last_result, turn.task, turn.attempt))
        return Result(number(turn), message="done")

    store = goals(CHECK, constraints=["be brief"])
    outcome = ended(looped(of_sort(sort, agent), store, tmp_path, checks={"enough": at_least(3)}, attempt=2))
    assert outcome == Succeeded(result={"at": 3}, state={"seen": [1], "n": 3}, message="done")
    assert seen == [
        (1, "", None, "reach it", 2),
        (2, "1 < 3", {"at": 1}, "reach it", 1),
        (3, "2 < 3", {"at": 2}, "reach it", 1),
    ]
    assert store.judged() == [False, False, True]
    assert [done.excerpt for done in store.committed] == ['{"at": 1}', '{"at": 2}', '{"at": 3}']
    assert [done.state["n"] for done in store.committed] == [1, 2, 3]


def test_without_a_validation_the_agents_success_ends_it(sort: str, tmp_path: Path) -> None:
    store = goals()
    assert ended(looped(of_sort(sort, number), store, tmp_path)) == Succeeded(
        result={"at": 1}, state={"seen": [1], "n": 1}
    )
    assert [done.validation["by"] for done in store.committed] == ["none"]


def test_a_goal_that_is_not_reached_in_its_iterations_fails_with_the_last_reason(sort: str, tmp_path: Path) -> None:
    store = goals(CHECK, max_iterations=2)
    outcome = ended(looped(of_sort(sort, number), store, tmp_path, checks={"enough": at_least(9)}))
    assert outcome == Missed(
        code="not_validated", message="the last of 2 iterations did not pass its validation: 2 < 9"
    )
    assert store.judged() == [False, False]


def test_it_goes_on_after_the_last_committed_iteration_with_its_state(sort: str, tmp_path: Path) -> None:
    store = goals(CHECK, iteration=2, last_validation={"output": "no"}, last_result="two", state={"n": 40})
    outcome = ended(looped(of_sort(sort, number), store, tmp_path, checks={"enough": at_least(3)}))
    assert outcome == Succeeded(result={"at": 3}, state={"n": 41})


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        (
            {"iteration": 3, "passed": True, "last_result": "it", "state": {"n": 3}},
            Succeeded(result="it", state={"n": 3}),
        ),
        (
            {"iteration": 5, "last_validation": {"output": ""}},
            Missed(code="not_validated", message="the last of 5 iterations did not pass its validation"),
        ),
        (
            {"iteration": 1, "constraints": {"max_seconds": 3}, "spent_s": 3.5},
            Missed(code="budget_exceeded", message="max_seconds, 3, are used up after iteration 1"),
        ),
    ],
    ids=["passed", "exhausted", "spent"],
)
def test_what_was_decided_before_a_crash_is_not_run_again(
    sort: str, tmp_path: Path, more: dict[str, Any], wanted: Any
) -> None:
    ran: list[int] = []
    agent = of_sort(sort, lambda turn: ran.append(1))
    assert ended(looped(agent, goals(CHECK, **more), tmp_path, checks={"enough": at_least(9)})) == wanted
    assert ran == []


def test_what_a_shut_down_takes_back_after_the_last_commit_is_kept_for_the_next_run(sort: str, tmp_path: Path) -> None:
    store = goals(CHECK)

    class Shut(type(store)):  # type: ignore[misc]
        """Is told to stop in the middle of the commit."""

        def commit(self, lease: Any, done: Any) -> bool:
            run.stop(Stop.HANDBACK)
            return bool(super().commit(lease, done))

    store.__class__ = Shut
    run = looped(of_sort(sort, number), store, tmp_path, checks={"enough": at_least(1)})
    assert isinstance(ended(run), HandedBack)
    again = looped(of_sort(sort, number), goals(CHECK, **_kept(store)), tmp_path, checks={"enough": at_least(9)})
    assert ended(again) == Succeeded(result={"at": 1}, state={"seen": [1], "n": 1})


def _kept(store: Any) -> dict[str, Any]:
    record = store.record
    return {name: getattr(record, name) for name in ("iteration", "passed", "last_result", "state")}


def test_steps_and_children_of_iterations_do_not_collide(tmp_path: Path) -> None:
    turns = MemoryTurnStore()
    name = "x" * 200

    def agent(turn: TurnContext) -> Any:
        assert turn.goal is not None
        at = turn.goal.iteration
        turn.dispatch("a child")
        turn.dispatch("another", key="k")
        return [turn.step(name, lambda: at), turn.step(name, lambda: "again"), turn.idempotency_key]

    outcome = ended(looped(agent, goals(CHECK), tmp_path, checks={"enough": at_least(2)}, turns=turns))
    assert isinstance(outcome, Succeeded)
    assert outcome.result[:2] == [2, 2]
    assert outcome.result[2].endswith(":4:2")
    assert turns.steps == {f"1:{name}": 1, f"2:{name}": 2}
    assert list(turns.bodies) == ["1:call:1", "1:key:k", "2:call:1", "2:key:k"]


def test_what_an_agent_raises_ends_the_run_and_commits_nothing(sort: str, tmp_path: Path) -> None:
    for raised, wanted in (
        (ValueError("no"), AgentFailed(message="ValueError: no")),
        (Retry(after=3), RetryAsked(after_s=3.0)),
        (Discard("useless"), Discarded(reason="useless")),
        (NeedsInput("which?"), InputAsked(question="which?")),
    ):

        def agent(turn: TurnContext, raised: Exception = raised) -> Any:
            raise raised

        store = goals(CHECK)
        assert ended(looped(of_sort(sort, agent), store, tmp_path, checks={"enough": at_least(1)})) == wanted
        assert store.committed == []


def test_an_iteration_can_wait_for_its_children(tmp_path: Path) -> None:
    def agent(turn: TurnContext) -> Any:
        turn.wait(turn.dispatch("a child"))

    turns = MemoryTurnStore()
    assert ended(looped(agent, goals(), tmp_path, turns=turns)) == ChildrenAwaited(job_ids=("orch-1:call:1",))


def test_a_session_that_shall_pause_gets_its_loop_back_after_the_iteration(sort: str, tmp_path: Path) -> None:
    store = goals(CHECK)
    store.pause_at = 2
    outcome = ended(looped(of_sort(sort, number), store, tmp_path, checks={"enough": at_least(4)}))
    assert outcome == HandedBack(message="the session is to pause")
    assert store.record.iteration == 2


@pytest.mark.parametrize("sure", ["passed", "exhausted"])
def test_a_pause_does_not_hold_up_a_loop_that_is_over(tmp_path: Path, sure: str) -> None:
    store = goals(CHECK, max_iterations=2)
    store.pause_at = 2
    check = at_least(2 if sure == "passed" else 9)
    outcome = ended(looped(number, store, tmp_path, checks={"enough": check}))
    assert isinstance(outcome, Succeeded if sure == "passed" else Missed)


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        (Stop.CANCELLED, CancelledRun(code="cancelled", message="cancelled on request")),
        (Stop.EXPIRED, CancelledRun(code="expired", message="the deadline has passed")),
        (Stop.TIMEOUT, TimedOut(message="the run took longer than its time limit")),
        (Stop.BUDGET, Missed(code="budget_exceeded", message="the goal's max_seconds are used up")),
        (Stop.HANDBACK, HandedBack(message="the worker shuts down")),
        (Stop.LOST, LeaseGone()),
    ],
)
def test_a_run_that_is_told_in_its_agent_commits_no_further_iteration(
    sort: str, tmp_path: Path, code: str, wanted: Any
) -> None:
    def agent(turn: TurnContext) -> Any:
        assert turn.goal is not None
        if turn.goal.iteration == 2:
            run.stop(code)
        return "a value in spite of it"

    store = goals(CHECK)
    run = looped(of_sort(sort, agent), store, tmp_path, checks={"enough": at_least(2)})
    assert ended(run) == wanted
    assert store.judged() == [False]


def test_a_run_that_is_told_in_its_check_commits_nothing_of_the_iteration(sort: str, tmp_path: Path) -> None:
    def check(turn: TurnContext, result: Any) -> bool:
        run.stop(Stop.CANCELLED)
        return True

    store = goals(CHECK)
    run = looped(of_sort(sort, number), store, tmp_path, checks={"enough": check})
    assert isinstance(ended(run), CancelledRun)
    assert store.committed == []


def test_a_lost_lease_is_no_iteration(sort: str, tmp_path: Path) -> None:
    store = goals(CHECK)
    store.lost = True
    assert ended(looped(of_sort(sort, number), store, tmp_path, checks={"enough": at_least(1)})) == LeaseGone()


def test_each_iteration_has_the_agents_time_anew_and_the_budget_what_is_left(tmp_path: Path) -> None:
    limits: list[dict[str, float]] = []

    def agent(turn: TurnContext) -> Any:
        limits.append(dict(turn.limits))

    def check(turn: TurnContext, result: Any) -> bool:
        assert list(turn.limits) == [Stop.BUDGET], "a validation has a time of its own"
        return len(limits) == 2

    plain = RegisteredAgent(name="tested", fn=agent, is_async=False, timeout_s=50)
    store = goals(CHECK, constraints={"max_seconds": 100}, spent_s=60.0)
    run = looped(agent, store, tmp_path, checks={"enough": check}, agent=plain)
    assert (run.agent.timeout_s, run.agent.stop_grace_s) == (None, 10.0)
    assert isinstance(ended(run), Succeeded)
    assert limits[1][Stop.TIMEOUT] > limits[0][Stop.TIMEOUT]
    assert limits[0][Stop.BUDGET] - limits[0][Stop.TIMEOUT] == pytest.approx(-10, abs=1)
    assert run.context.limits == {}


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (None, "TypeError: check enough returned NoneType, and not True, False or a text"),
        (1, "TypeError: check enough returned int, and not True, False or a text"),
    ],
)
def test_a_check_that_answers_otherwise_is_an_error_and_no_verdict(tmp_path: Path, said: Any, message: str) -> None:
    store = goals(CHECK)
    assert ended(looped(number, store, tmp_path, checks={"enough": lambda turn, result: said})) == AgentFailed(
        message=message
    )
    assert store.committed == []


def test_an_async_check_is_awaited_also_by_a_sync_agent(sort: str, tmp_path: Path) -> None:
    async def check(turn: TurnContext, result: Any) -> bool:
        return bool(result["at"] == 2)

    store = goals(CHECK)
    assert isinstance(ended(looped(of_sort(sort, number), store, tmp_path, checks={"enough": check})), Succeeded)
    assert store.judged() == [False, True]


def test_a_sync_agent_finds_no_event_loop_and_stays_in_its_thread(tmp_path: Path) -> None:
    import asyncio

    threads = set()

    def agent(turn: TurnContext) -> Any:
        threads.add(threading.get_ident())
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()

    ended(looped(agent, goals(CHECK), tmp_path, checks={"enough": at_least(2)}))
    assert threads == {threading.get_ident()}


def test_a_worker_without_the_check_says_so_before_anything_runs(tmp_path: Path) -> None:
    ran: list[int] = []
    outcome = ended(looped(lambda turn: ran.append(1), goals(CHECK), tmp_path))
    assert outcome == AgentFailed(message="ValidationNotRun: this worker has no check named enough; see AGENT_MODULES")
    assert ran == []


def test_a_goal_whose_check_another_worker_has_is_left_to_it_and_uses_no_attempt(sort: str, tmp_path: Path) -> None:
    ran: list[int] = []
    store = goals(CHECK)
    store.known_checks = ("enough",)
    assert ended(looped(of_sort(sort, lambda turn: ran.append(1)), store, tmp_path)) == Snoozed(after_s=2.0)
    assert ran == []
    assert store.committed == []


@pytest.mark.parametrize(
    ("state", "wanted"),
    [
        ([1], AgentFailed(message="TypeError: the session state is not an object")),
        (
            {"x": "y" * 300_000},
            Missed(code="agent_error", message="the session state has 300008 bytes, at most 262144 are kept"),
        ),
    ],
)
def test_a_state_that_is_never_stored_ends_the_run(tmp_path: Path, state: Any, wanted: Any) -> None:
    def agent(turn: TurnContext) -> Any:
        turn.state = state

    store = goals()
    assert ended(looped(agent, store, tmp_path)) == wanted
    assert store.committed == []


def test_an_agent_that_returns_an_awaitable_is_an_error(tmp_path: Path) -> None:
    outcome = ended(looped(lambda turn: anumber(turn), goals(), tmp_path))
    assert outcome == AgentFailed(message="TypeError: the agent returned an awaitable; declare it with async def")


def test_the_goal_in_words_has_all_that_an_agent_needs(tmp_path: Path) -> None:
    texts = []

    def agent(turn: TurnContext) -> Any:
        assert turn.goal is not None
        texts.append(turn.goal.as_text())
        return "a try"

    store = goals(CHECK, constraints={"language": "Python"})
    ended(looped(agent, store, tmp_path, checks={"enough": at_least(2)}))
    assert texts[0] == 'reach it\n\nThis is iteration 1 of at most 5.\n\nConstraints: {"language": "Python"}'
    assert texts[1].endswith("The last iteration returned: a try\n\nIt did not pass the validation: 1 < 2")
