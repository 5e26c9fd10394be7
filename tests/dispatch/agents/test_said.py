"""What an agent says is written soon, in order, in few pieces, and up to a limit."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dispatch.agents import TurnContext
from dispatch.agents.said import BATCH_S, CHUNK_CHARS, Said
from dispatch.errors import LeaseLost
from dispatch.outcomes import LeaseGone, Succeeded
from tests.dispatch.agents.turn_store import MemoryTurnStore, ended, lease, run_of
from tests.support.processes import until


class Clocked:
    """A Said by a clock that the test moves, and what was written of it."""

    def __init__(self, **options: Any) -> None:
        self.now = 100.0
        self.said = Said(lambda: None, clock=lambda: self.now, **options)
        self.written: list[tuple[str, dict[str, Any]]] = []

    def write(self) -> list[tuple[str, dict[str, Any]]]:
        before = len(self.written)
        self.said.write(lambda kind, data: self.written.append((kind, data)))
        return self.written[before:]


def test_the_first_word_is_due_at_once_and_what_follows_a_moment_later_or_when_it_fills_a_chunk() -> None:
    one = Clocked()
    assert not one.said.is_due(), "nothing was said"
    one.said.text("a")
    assert one.said.is_due()
    assert one.write() == [("text", {"text": "a"})]
    one.said.text("b")
    one.said.text("c")
    assert not one.said.is_due()
    one.now += BATCH_S
    assert one.said.is_due()
    assert one.write() == [("text", {"text": "bc"})]
    one.said.text("d" * CHUNK_CHARS)
    assert not one.said.is_due()
    one.said.text("e")
    assert one.said.is_due(), "a chunk is full"
    assert [data["text"] for _, data in one.write()] == ["d" * CHUNK_CHARS, "e"]


def test_all_text_is_written_in_order_and_then_the_newest_progress() -> None:
    one = Clocked()
    one.said.text("a")
    one.said.progress(1, 2, "one")
    one.said.text("b")
    one.said.progress(2, 2, "two")
    assert one.write() == [("text", {"text": "ab"}), ("progress", {"done": 2, "total": 2, "message": "two"})]


def test_beyond_its_limit_text_is_dropped_and_that_is_said_once() -> None:
    one = Clocked(limit_bytes=5)
    for text in ("abc", "äö", "more", "and more"):
        one.said.text(text)
    assert one.write() == [("text", {"text": "abcä\n[output beyond 5 bytes is not kept]\n"})]


def test_the_longer_a_run_lasts_the_more_seldom_is_its_progress_written() -> None:
    one, rows = Clocked(), 0
    for tenth in range(10 * 3600):
        one.now = 100.0 + tenth / 10
        one.said.progress(tenth, None, "")
        if one.said.is_due():
            rows += len(one.write())
    assert 1_000 < rows < 5_000


def test_a_piece_that_could_not_be_written_stays_in_its_place() -> None:
    one = Clocked()
    one.said.text("a" * CHUNK_CHARS + "b")

    def refuse(kind: str, data: dict[str, Any]) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        one.said.write(refuse)
    assert one.said
    assert [data["text"] for _, data in one.write()] == ["a" * CHUNK_CHARS, "b"]


def test_what_was_said_is_written_though_the_agent_is_silent_afterwards() -> None:
    store, over = MemoryTurnStore(), threading.Event()

    def agent(turn: TurnContext) -> None:
        turn.emit("at once")
        turn.emit(", and soon")
        assert over.wait(20)

    thread = threading.Thread(target=ended, args=(agent, store))
    thread.start()
    try:
        until(lambda: len(store.chunks) == 2, 10, "both are written while the agent waits")
    finally:
        over.set()
        thread.join()
    assert [data["text"] for _, data in store.chunks] == ["at once", ", and soon"]


def test_ten_thousand_words_are_a_few_rows_and_all_are_there_when_the_run_has_ended() -> None:
    def agent(turn: TurnContext) -> None:
        for number in range(10_000):
            turn.emit(f"{number}\n")

    async def on_a_loop(turn: TurnContext) -> None:
        for number in range(10_000):
            await turn.aemit(f"{number}\n")

    for one in (agent, on_a_loop):
        store, began = MemoryTurnStore(), time.monotonic()
        run = run_of(one, store)
        assert isinstance(asyncio.run(run.run_async()) if one is on_a_loop else run.run_sync(), Succeeded)
        took = time.monotonic() - began
        assert "".join(data["text"] for _, data in store.chunks) == "".join(f"{n}\n" for n in range(10_000))
        assert len(store.chunks) <= 10 + took / BATCH_S


def test_last_words_of_a_run_that_lost_its_lease_end_it_as_lost() -> None:
    def agent(turn: TurnContext) -> str:
        turn.emit("a")
        store.current_epoch = 2
        turn.emit("b")
        return "done"

    store = MemoryTurnStore()
    assert isinstance(ended(agent, store), LeaseGone)
    assert [data["text"] for _, data in store.chunks] == ["a"]


def test_a_store_that_is_away_for_a_moment_costs_a_run_nothing_of_what_it_said(monkeypatch: pytest.MonkeyPatch) -> None:
    store, refused = MemoryTurnStore(), list[int]()
    emit = store.emit

    def away_once(held: Any, kind: str, data: dict[str, Any]) -> None:
        if data["text"] == "b" and not refused:
            refused.append(1)
            raise ConnectionError
        emit(held, kind, data)

    monkeypatch.setattr(store, "emit", away_once)
    monkeypatch.setattr("dispatch.agents.patience.TRY_AGAIN_S", 0.01)

    def agent(turn: TurnContext) -> None:
        turn.emit("a")
        turn.emit("b")

    assert isinstance(ended(agent, store), Succeeded)
    assert [data["text"] for _, data in store.chunks] == ["a", "b"]


def test_nothing_is_said_once_the_run_was_fenced() -> None:
    store = MemoryTurnStore()
    turn = TurnContext(lease(), store)
    turn.fence()
    says: list[Callable[[], Any]] = [
        lambda: turn.emit("x"),
        lambda: turn.progress(1),
        lambda: asyncio.run(turn.aemit("x")),
    ]
    for say in says:
        with pytest.raises(LeaseLost):
            say()
    turn.last_words()
    assert store.chunks == []
