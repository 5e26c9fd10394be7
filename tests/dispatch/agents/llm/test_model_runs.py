"""A model's turn: what it is asked, what it says, what its tools do, and what becomes of the conversation."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from dispatch.agents.runner import Stop, TurnRun
from dispatch.outcomes import (
    AgentFailed,
    CancelledRun,
    Discarded,
    InputAsked,
    LeaseGone,
    RetryAsked,
)
from dispatch.ports import Lease
from dispatch.spending import ModelSpend
from tests.dispatch.agents.command.commands import text_of
from tests.dispatch.agents.llm.models import KEY, KEY_NAME, declared, done, progress_of, run
from tests.dispatch.agents.turn_store import MemoryTurnStore, lease
from tests.support.model_server import ModelServer, calls, refuses, says
from tests.support.processes import until

WAIT_S = 20.0


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as one:
        yield one


def test_the_task_and_the_instructions_are_sent_and_the_answer_is_the_result(
    tmp_path: Path, server: ModelServer
) -> None:
    (tmp_path / "role.md").write_text("You are terse.")
    server.script(says("Yes", ", it is."))
    store = MemoryTurnStore()
    settings = {"temperature": 0.25, "max_tokens": 99, "seed": 7}
    agent = declared(tmp_path, server.url, instructions_file="role.md", api_key_env=KEY_NAME, settings=settings)
    assert done(run(agent, store, task="Is it?")).result == "Yes, it is."
    (asked,) = server.asked
    assert asked.texts == [("system", "You are terse."), ("user", "Is it?")]
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert (asked.body["model"], asked.body["temperature"], asked.body["seed"]) == ("small", 0.25, 7)
    assert 99 in (asked.body.get("max_tokens"), asked.body.get("max_completion_tokens"))
    assert text_of(store) == "Yes, it is."


def test_tokens_are_streamed_in_order_in_batches_and_tool_calls_and_their_ends_are_progress(
    tmp_path: Path, server: ModelServer
) -> None:
    numbers = [f"{n} " for n in range(200)]
    server.script(calls("add", a=1, b=2), says(*numbers))
    store = MemoryTurnStore()
    done(run(declared(tmp_path, server.url, tools=["add"]), store))
    assert text_of(store) == "".join(numbers)
    assert sum(kind == "text" for kind, _ in store.chunks) < 50
    assert progress_of(store) == [(0, "add called"), (1, "add ended")]
    assert [kind for kind, _ in store.chunks][:3] == ["progress", "progress", "text"]


def test_a_tool_may_take_the_turn_and_change_its_state_and_the_model_is_told_of_its_other_parameters(
    tmp_path: Path, server: ModelServer
) -> None:
    server.script(
        calls("remember", fact="it rains"), calls("recall"), calls("whose"), calls("add", a=1, b=2), says("done")
    )
    store = MemoryTurnStore()
    agent = declared(tmp_path, server.url, tools=["remember", "recall", "whose", "add"])
    assert done(run(agent, store, tenant="t9")).state["facts"] == ["it rains"]
    told = {one["function"]["name"]: one["function"] for one in server.asked[0].body["tools"]}
    assert set(told["remember"]["parameters"]["properties"]) == {"fact"}
    assert told["recall"]["parameters"]["properties"] == told["whose"]["parameters"]["properties"] == {}
    assert told["add"]["description"] == "Add two numbers."
    assert told["add"]["parameters"]["properties"]["a"] == {"description": "the first", "type": "integer"}
    answers = [m["content"] for m in server.asked[-1].body["messages"] if m["role"] == "tool"]
    assert answers[1:] == ['["it rains"]', "t9", "3"]
    assert answers[0].startswith("kept in ")
    assert "MainThread" not in answers[0]
    assert text_of(store) == "[it rains]done"
    assert not store.held


def test_the_next_turn_sees_what_this_one_committed_and_a_failed_one_leaves_nothing(
    tmp_path: Path, server: ModelServer
) -> None:
    agent = declared(tmp_path, server.url, tools=["add"], instructions="Be kind.")
    server.script(calls("add", a=1, b=2), says("3"))
    first = done(run(agent, task="1+2?"))
    server.script(says("You asked for 1+2."))
    second = done(run(agent, task="What did I ask?", state=first.state))
    messages = server.asked[-1].body["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert messages[2]["tool_calls"][0]["id"] == messages[3]["tool_call_id"]
    assert [m["content"] for m in messages if m["role"] == "system"] == ["Be kind."]
    assert len(second.state["conversation"]) == 2
    server.script(refuses(500))
    failed = TurnRun(lease(state=second.state), agent, MemoryTurnStore())
    assert isinstance(asyncio.run(failed.run_async()), RetryAsked)
    assert failed.context.state == second.state


def test_a_state_that_holds_no_conversation_is_refused_and_nothing_is_sent(tmp_path: Path, server: ModelServer) -> None:
    agent = declared(tmp_path, server.url)
    for wrong in ("hello", ["hello"], [[{"kind": "request"}]], [[{"kind": "request", "parts": [{"part_kind": "?"}]}]]):
        outcome = run(agent, state={"conversation": wrong})
        assert isinstance(outcome, Discarded)
        assert "conversation" in outcome.reason
    assert server.asked == []


def test_output_by_a_schema_is_an_object(tmp_path: Path, server: ModelServer) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    (tmp_path / "place.json").write_text(json.dumps(schema))
    server.fallback = lambda body: calls(body["tools"][0]["function"]["name"], city="Oslo")
    server.script(calls("final_result", city=3))
    agent = declared(tmp_path, server.url, output_schema="place.json")
    first = done(run(agent))
    assert first.result == {"city": "Oslo"}
    assert "$.city: 3 is not of type 'string'" in str(server.asked[1].body["messages"][-1]["content"])
    assert done(run(agent, state=first.state)).result == {"city": "Oslo"}
    server.fallback = lambda body: calls("final_result")
    assert isinstance(run(agent), AgentFailed)


@pytest.mark.parametrize(
    ("answer", "expected", "words"),
    [
        (refuses(429, code="rate_limit_exceeded", Retry_After="7"), RetryAsked, "429 (rate_limit_exceeded)"),
        (refuses(429, Retry_After="86400"), RetryAsked, "429"),
        (refuses(503), RetryAsked, "503"),
        (refuses(500), RetryAsked, "500"),
        (refuses(408), RetryAsked, "408"),
        (refuses(409), RetryAsked, "409"),
        (refuses(425), RetryAsked, "425"),
        (says("half", "an answer", breaks=True), RetryAsked, "broke off"),
        (refuses(401, code="invalid_api_key", message=f"wrong key {KEY}"), Discarded, "401 (invalid_api_key)"),
        (refuses(400, code=f"bad {KEY}", message=KEY), Discarded, "400"),
        (refuses(403), Discarded, "403"),
        (refuses(404), Discarded, "404"),
        (refuses(429, code="insufficient_quota"), Discarded, "429 (insufficient_quota)"),
        (says("no", finish="content_filter"), Discarded, "content filter cut"),
        (says(finish="content_filter"), Discarded, "content filter kept"),
        (says(finish="length"), Discarded, "no tokens left"),
        (refuses(422), Discarded, "422"),
    ],
)
def test_what_a_provider_answers_says_whether_another_attempt_is_worth_it(
    tmp_path: Path, server: ModelServer, caplog: pytest.LogCaptureFixture, answer: Any, expected: type, words: str
) -> None:
    server.script(answer)
    agent = declared(tmp_path, server.url, api_key_env=KEY_NAME)
    outcome = run(agent)
    assert isinstance(outcome, expected), outcome
    said = outcome.message if isinstance(outcome, RetryAsked) else getattr(outcome, "reason", "")
    assert words in said
    assert KEY not in said + caplog.text
    assert server.url not in said
    assert len(server.asked) == 1, "the client itself tries nothing again"
    if isinstance(outcome, RetryAsked):
        asked_for = answer.headers.get("Retry-After")
        assert outcome.after_s == (None if asked_for is None else min(float(asked_for), 600.0))


def test_a_slow_answer_and_a_server_that_is_not_there_are_tried_again(tmp_path: Path, server: ModelServer) -> None:
    server.script(says("never", hold=threading.Event()))
    slow = run(declared(tmp_path, server.url, settings={"timeout_s": 0.3}))
    assert isinstance(slow, RetryAsked)
    assert "in time" in slow.message or "broke off" in slow.message
    server.until_left()
    store = MemoryTurnStore()
    away = run(declared(tmp_path, "http://127.0.0.1:9/v1"), store)
    assert isinstance(away, RetryAsked)
    assert "cannot be reached" in away.message
    assert store.begun == 0, "what was never sent is not counted"


def test_a_broken_tool_is_an_error_and_what_a_tool_raises_for_the_turn_is_the_turns(
    tmp_path: Path, server: ModelServer
) -> None:
    agent = declared(tmp_path, server.url, tools=["boom", "give_up", "ask"])
    server.script(calls("boom"))
    broken = run(agent)
    assert isinstance(broken, AgentFailed)
    assert broken.message == "RuntimeError: the tool broke"
    server.script(calls("give_up"))
    assert run(agent) == Discarded(reason="the tool gave up")
    server.script(calls("ask", question="Sure?"))
    assert run(agent) == InputAsked(question="Sure?", choices=None)
    server.script(calls("ask", question="Sure?"), says("ok"))
    assert done(run(agent, MemoryTurnStore(answer="yes"), resumed=True)).result == "ok"
    assert server.asked[-1].body["messages"][-1]["content"] == "yes"


def test_what_the_model_gets_wrong_it_may_correct_as_often_as_retries_say(tmp_path: Path, server: ModelServer) -> None:
    agent = declared(tmp_path, server.url, tools=["add", "pick"], retries=1)
    server.script(calls("add", a="one", b=2), calls("pick", colour="red"), calls("pick", colour="blue"), says("ok"))
    store = MemoryTurnStore()
    assert done(run(agent, store)).result == "ok"
    assert "only blue" in str(server.asked[2].body["messages"][-1]["content"])
    assert progress_of(store)[:2] == [(0, "add called"), (1, "add failed")]
    server.clear()
    server.fallback = lambda body: calls("pick", colour="red")
    outcome = run(agent)
    assert isinstance(outcome, AgentFailed)
    assert "pick" in outcome.message
    assert len(server.asked) == 2


def test_an_answer_that_was_cut_off_is_a_result_and_the_timeline_says_so(tmp_path: Path, server: ModelServer) -> None:
    server.script(says("Once upon", finish="length"))
    outcome = done(run(declared(tmp_path, server.url)))
    assert (outcome.result, outcome.message) == ("Once upon", "the answer was cut off at the model's limit of tokens")


def test_each_request_is_counted_with_what_it_cost(tmp_path: Path, server: ModelServer) -> None:
    prices = {"input": 2.5, "output": "10"}
    server.script(calls("add", usage=(1000, 10), a=1, b=2), says("3", usage=(2000, 20)))
    store = MemoryTurnStore()
    done(run(declared(tmp_path, server.url, tools=["add"], prices=prices), store))
    assert store.spends == [
        ModelSpend(input_tokens=1000, output_tokens=10, tool_calls=1, cost=Decimal("0.0026")),
        ModelSpend(input_tokens=2000, output_tokens=20, cost=Decimal("0.0052")),
    ]


@pytest.mark.parametrize("prices", [{}, {"prices": {"input": 1, "output": 1}}])
def test_a_cost_that_is_not_known_is_none(tmp_path: Path, server: ModelServer, prices: dict[str, Any]) -> None:
    """No prices; or none of the tokens said, also of an answer that broke off."""
    server.script(says("ok", usage=None), says("a", "b", breaks=True), says("ok"))
    store = MemoryTurnStore()
    agent = declared(tmp_path, server.url, model="gpt-4o", **prices)
    done(run(agent, store))
    assert isinstance(run(agent, store), RetryAsked)
    assert [one.cost for one in store.spends] == [None, None]
    assert store.begun == 2
    done(run(agent, store))
    assert (store.spends[-1].cost is None) == (not prices), "a well-known name does not make a server of one's own dear"


def test_a_providers_price_is_known_where_the_library_knows_it(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    store = MemoryTurnStore()
    for model in ("gpt-4o", "no-such-model"):
        done(run(declared(tmp_path, None, model=f"openai-chat:{model}", api_key_env=KEY_NAME), store))
    known, unknown = (one.cost for one in store.spends)
    assert known is not None
    assert 0 < known < 1
    assert unknown is None
    assert [asked.body["model"] for asked in server.asked] == ["gpt-4o", "no-such-model"]
    assert {asked.headers["authorization"] for asked in server.asked} == {f"Bearer {KEY}"}


def test_a_server_of_ones_own_never_gets_a_key_that_was_not_named(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    done(run(declared(tmp_path, server.url)))
    assert KEY not in str(server.asked[0].headers)


def test_a_refused_request_is_not_counted(tmp_path: Path, server: ModelServer) -> None:
    server.script(refuses(429))
    store = MemoryTurnStore()
    run(declared(tmp_path, server.url, max_requests=1), store)
    assert store.spends == [ModelSpend(refused=True)]
    assert done(run(declared(tmp_path, server.url, max_requests=1), store)).result == "heard do it"


@pytest.mark.parametrize(
    ("keys", "sent", "words"),
    [
        ({"max_requests": 2}, 2, "max_requests is 2, and this turn has spent 2 requests"),
        ({"max_tokens": 30}, 2, "max_tokens is 30, and this turn has spent 30 tokens"),
        ({"session_max_tokens": 15}, 1, "session_max_tokens is 15, and this session has spent 15 tokens"),
    ],
)
def test_a_budget_that_is_used_up_ends_the_turn_and_nothing_more_is_sent(
    tmp_path: Path, server: ModelServer, keys: dict[str, int], sent: int, words: str
) -> None:
    server.fallback = lambda body: calls("add", a=1, b=2)
    outcome = run(declared(tmp_path, server.url, tools=["add"], **keys))
    assert isinstance(outcome, Discarded)
    assert outcome.code == "budget_exceeded"
    assert words in outcome.reason
    assert len(server.asked) == sent


def test_a_cancel_in_the_middle_closes_the_connection_and_what_was_said_is_kept(
    tmp_path: Path, server: ModelServer
) -> None:
    server.script(says("Once ", "upon ", "a time", hold=threading.Event()))
    store = MemoryTurnStore()
    one = TurnRun(lease(state={}), declared(tmp_path, server.url), store)

    async def both() -> object:
        running = asyncio.create_task(one.run_async())
        await asyncio.to_thread(until, lambda: text_of(store) == "Once upon ", WAIT_S, "it is said")
        one.stop(Stop.CANCELLED)
        await asyncio.to_thread(server.until_left)
        return await asyncio.wait_for(running, WAIT_S)

    outcome = asyncio.run(both())
    assert isinstance(outcome, CancelledRun)
    assert text_of(store) == "Once upon "
    assert store.begun == 1
    assert [one.refused for one in store.spends] == [False], "the provider was paid for it"


def test_a_cancel_that_comes_while_a_request_is_written_down_ends_the_run_after_it(
    tmp_path: Path, server: ModelServer
) -> None:
    class Store(MemoryTurnStore):
        writing, told = threading.Event(), threading.Event()

        def model_ended(self, lease: Lease, model: str, spend: ModelSpend) -> None:
            self.writing.set()
            assert self.told.wait(WAIT_S)
            super().model_ended(lease, model, spend)

    server.script(calls("add", a=1, b=2))
    store = Store()
    one = TurnRun(lease(state={}), declared(tmp_path, server.url, tools=["add"]), store)

    async def both() -> object:
        running = asyncio.create_task(one.run_async())
        assert await asyncio.to_thread(store.writing.wait, WAIT_S)
        one.stop(Stop.CANCELLED)
        await asyncio.sleep(0)
        store.told.set()
        return await asyncio.wait_for(running, WAIT_S)

    assert isinstance(asyncio.run(both()), CancelledRun)
    assert len(server.asked) == len(store.spends) == 1


def test_a_tool_that_runs_hears_of_the_cancel(tmp_path: Path, server: ModelServer) -> None:
    server.script(calls("watch"))
    store = MemoryTurnStore()
    one = TurnRun(lease(state={}), declared(tmp_path, server.url, tools=["watch"]), store)

    async def both() -> object:
        running = asyncio.create_task(one.run_async())
        await asyncio.to_thread(until, lambda: text_of(store) == "watching", WAIT_S, "the tool runs")
        one.stop(Stop.CANCELLED)
        return await asyncio.wait_for(running, WAIT_S)

    assert isinstance(asyncio.run(both()), CancelledRun)
    assert len(server.asked) == 1


def test_a_lost_lease_sends_nothing_and_says_nothing(tmp_path: Path, server: ModelServer) -> None:
    store = MemoryTurnStore(current_epoch=2)
    assert run(declared(tmp_path, server.url), store) == LeaseGone()
    assert server.asked == []
    assert store.chunks == []


def test_one_loop_holds_many_waiting_turns_without_a_thread_for_each(tmp_path: Path, server: ModelServer) -> None:
    gate = threading.Event()
    server.fallback = lambda body: says("a", "b", hold=gate)
    agent = declared(tmp_path, server.url)
    before = {thread.name for thread in threading.enumerate()}

    async def main() -> set[str]:
        runs = [TurnRun(lease(state={}), agent, MemoryTurnStore()) for _ in range(60)]
        tasks = [asyncio.create_task(one.run_async()) for one in runs]
        await asyncio.to_thread(server.until_asked, len(tasks))
        own = {thread.name for thread in threading.enumerate()} - before
        gate.set()
        for outcome in await asyncio.gather(*tasks):
            assert done(outcome).result == "ab"
        return {name for name in own if "process_request_thread" not in name}  # those are the server's

    assert len(asyncio.run(main())) <= 8
