"""A session's conversation: what of it is kept, and that what is kept is whole."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.models.test import TestModel

from dispatch.agents import TurnContext
from dispatch.agents.llm import history
from dispatch.agents.llm.conversation import Conversations
from dispatch.agents.llm.spec import ModelSpec
from tests.dispatch.agents.turn_store import MemoryTurnStore, lease
from tests.support.model_tools import add

DEFAULTS: dict[str, int] = {"most_turns": 20, "most_bytes": 100_000}


def turn(prompt: str, *, tools: bool = True, answer: str | None = None) -> list[ModelMessage]:
    """The messages of one turn, its tool calls answered."""
    model = TestModel(call_tools="all" if tools else [], custom_output_text=answer)
    return asyncio.run(Agent(model, tools=[add], instructions="x" * 50).run(prompt)).new_messages()


def kept(state: dict[str, Any]) -> int:
    return len(json.dumps(state["conversation"], ensure_ascii=False, separators=(",", ":")).encode())


def assert_whole(messages: list[ModelMessage]) -> None:
    called = [p.tool_call_id for m in messages for p in m.parts if isinstance(p, ToolCallPart)]
    answered = [p.tool_call_id for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
    assert called == answered


def test_what_was_written_is_read_and_nothing_is_said_twice() -> None:
    state: dict[str, Any] = {"own": 1}
    for prompt in ("one", "two"):
        history.write(state, turn(prompt), **DEFAULTS)
    read = history.read(json.loads(json.dumps(state)))
    assert [getattr(m.parts[0], "content", "") for m in read if m.kind == "request"][::2] == ["one", "two"]
    assert_whole(read)
    assert "x" * 50 not in json.dumps(state)
    assert state["own"] == 1


def test_whole_turns_go_from_the_oldest() -> None:
    state: dict[str, Any] = {}
    for n in range(6):
        history.write(state, turn(f"turn {n}"), most_turns=3, most_bytes=100_000)
    assert len(state["conversation"]) == 3
    assert [m.parts[0].content for m in history.read(state) if m.kind == "request"][::2] == [  # type: ignore[union-attr]
        "turn 3",
        "turn 4",
        "turn 5",
    ]
    history.write(state, turn("last"), most_turns=3, most_bytes=kept(state) // 2)
    assert len(state["conversation"]) == 1
    assert_whole(history.read(state))
    history.write(state, turn("forgotten"), most_turns=0, most_bytes=100_000)
    assert state["conversation"] == []


def test_a_turn_too_large_alone_is_kept_without_its_tool_calls_or_not_at_all() -> None:
    state: dict[str, Any] = {}
    long = turn("hello", answer="short")
    history.write(state, [*long[:-1], *([long[1], long[2]] * 30), long[-1]], most_turns=9, most_bytes=2_000)
    read = history.read(state)
    assert [m.kind for m in read] == ["request", "response"]
    assert (read[0].parts[0].content, read[1].parts[0].content) == ("hello", "short")  # type: ignore[union-attr]
    history.write(state, turn("y" * 5_000), most_turns=9, most_bytes=2_000)
    assert state["conversation"] == []


@given(
    sizes=st.lists(st.integers(0, 3_000), min_size=1, max_size=8),
    most_bytes=st.integers(1_024, 9_000),
    most_turns=st.integers(0, 6),
)
def test_the_bounds_hold_and_no_call_is_without_its_answer(sizes: list[int], most_bytes: int, most_turns: int) -> None:
    state: dict[str, Any] = {}
    for n, size in enumerate(sizes):
        history.write(state, turn("é" * size, tools=n % 2 == 0), most_turns=most_turns, most_bytes=most_bytes)
        assert kept(state) <= most_bytes + len(sizes) + 2
        assert len(state["conversation"]) <= most_turns
        assert_whole(history.read(state))


def test_text_that_no_store_takes_is_cleaned_before_it_is_kept() -> None:
    state: dict[str, Any] = {}
    history.write(state, turn("a\0b", tools=False, answer="c\ud800"), **DEFAULTS)
    text = json.dumps(state, ensure_ascii=False)
    text.encode()
    assert "\\u0000" not in text
    assert [m.parts[0].content for m in history.read(state)] == ["a�b", "c�"]  # type: ignore[union-attr]


def test_a_model_of_any_kind_can_stand_in() -> None:
    """A function that answers and calls a tool, streamed."""

    async def answers(messages: list[ModelMessage], info: Any) -> Any:
        if len(messages) == 1:
            yield {0: DeltaToolCall(name="add", json_args='{"a": 2, "b": 3}', tool_call_id="c1")}
        else:
            yield "five"

    spec = ModelSpec(model="function", tools=("tests.support.model_tools:add",))
    asked: Callable[..., Any] = answers
    conversations = Conversations(spec, "tested", None, FunctionModel(stream_function=asked))
    store = MemoryTurnStore()
    context = TurnContext(lease(state={}), store)
    assert asyncio.run(conversations.run(context)).value == "five"
    assert store.spends[0].tool_calls == 1
