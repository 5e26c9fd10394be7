"""What an agent can do with its turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dispatch.agents import Cancelled, Discard, NeedsInput, Retry, Snooze, TurnContext
from dispatch.agents.context import ChildHandle
from dispatch.agents.control import ChildrenPending
from dispatch.agents.said import CHUNK_CHARS
from dispatch.errors import Invalid, LeaseLost
from tests.dispatch.agents.turn_store import DEADLINE, MemoryTurnStore, lease


@pytest.fixture
def store() -> MemoryTurnStore:
    return MemoryTurnStore()


def turn_of(store: MemoryTurnStore, **changes: Any) -> TurnContext:
    return TurnContext(lease(**changes), store)


def test_a_turn_knows_its_job(store: MemoryTurnStore) -> None:
    turn = turn_of(store, deadline=DEADLINE, attempt=2)
    assert (turn.task, turn.payload, turn.session_id, turn.tenant) == ("do it", {"n": 1}, "s-1", "t1")
    assert (turn.turn_number, turn.attempt, turn.deadline) == (2, 2, DEADLINE)
    assert turn.job_id == "orch-" + "a" * 32


def test_the_idempotency_key_is_the_same_on_every_attempt_and_new_after_a_manual_retry(store: MemoryTurnStore) -> None:
    first, second = turn_of(store, attempt=1, epoch=1), turn_of(store, attempt=2, epoch=5)
    assert first.idempotency_key == second.idempotency_key
    assert turn_of(store, session_seq=9).idempotency_key != first.idempotency_key


def test_state_and_payload_are_the_runs_own_copies(store: MemoryTurnStore) -> None:
    held = lease()
    turn = TurnContext(held, store)
    turn.state["seen"].append(2)
    turn.payload["n"] = 5
    assert (held.state, held.payload) == ({"seen": [1]}, {"n": 1})


def test_history_is_read_once_and_only_when_looked_at(store: MemoryTurnStore) -> None:
    store.turns = [{"turn_number": 1, "task": "a"}, {"turn_number": 2, "task": "b"}]
    turn = turn_of(store, turn_number=3)
    assert store.history_reads == 0
    assert (len(turn.history), turn.history[-1]["task"], turn.history[:1]) == (2, "b", store.turns[:1])
    assert [earlier["turn_number"] for earlier in turn.history] == [1, 2]
    assert store.history_reads == 1
    assert list(turn_of(store, turn_number=1).history) == []
    assert store.history_reads == 1


def test_output_is_appended_in_pieces_and_cleaned(store: MemoryTurnStore) -> None:
    turn = turn_of(store)
    turn.emit("a\x00")
    turn.emit("")
    turn.emit("x" * (CHUNK_CHARS + 1))
    turn.progress(float("nan"))
    turn.progress(1, 3, "going")
    turn.checkpoint("what was said before it is written before it")
    assert store.chunks[0] == ("text", {"text": "a\ufffd"})
    assert [len(data["text"]) for kind, data in store.chunks if kind == "text"] == [2, CHUNK_CHARS, 1]
    assert store.chunks[-1] == ("progress", {"done": 1, "total": 3, "message": "going"}), "the newest stands for all"
    turn.progress(float("nan"))
    turn.last_words()
    assert store.chunks[-1] == ("progress", {"done": None, "total": None, "message": ""})


def test_a_checkpoint_is_kept_and_read_back(store: MemoryTurnStore) -> None:
    turn = turn_of(store, checkpoint={"at": 1})
    assert turn.last_checkpoint == {"at": 1}
    turn.checkpoint({"at": (2, 3)})
    assert (turn.last_checkpoint, store.checkpoints) == ({"at": [2, 3]}, [{"at": [2, 3]}])
    with pytest.raises(Invalid, match="checkpoint"):
        turn.checkpoint("x" * 2_000_000)
    assert turn.last_checkpoint == {"at": [2, 3]}


def test_a_step_runs_once_over_all_attempts(store: MemoryTurnStore) -> None:
    ran: list[str] = []

    def effect(what: str) -> tuple[str, int]:
        ran.append(what)
        return what, len(ran)

    assert turn_of(store).step("pay", effect, "x") == ["x", 1]
    store.current_epoch = 2
    assert turn_of(store, attempt=2, epoch=2).step("pay", effect, "x") == ["x", 1]
    assert ran == ["x"]


def test_a_step_that_returned_nothing_is_not_run_again(store: MemoryTurnStore) -> None:
    ran: list[int] = []
    for _ in range(2):
        assert turn_of(store).step("note", ran.append, 1) is None
    assert ran == [1]


def test_a_step_that_raised_runs_again(store: MemoryTurnStore) -> None:
    def fails() -> None:
        raise ValueError("not yet")

    with pytest.raises(ValueError, match="not yet"):
        turn_of(store).step("pay", fails)
    assert turn_of(store).step("pay", lambda: "paid") == "paid"


@pytest.mark.parametrize("name", ["", "x" * 201, "a\x00", 3])
def test_a_step_has_a_short_name(store: MemoryTurnStore, name: Any) -> None:
    with pytest.raises(Invalid, match="name"):
        turn_of(store).step(name, lambda: 1)


def test_a_step_is_refused_before_it_runs_when_the_lease_is_lost(store: MemoryTurnStore) -> None:
    turn, ran = turn_of(store), list[int]()
    store.current_epoch = 2
    with pytest.raises(LeaseLost):
        turn.step("pay", ran.append, 1)
    assert (ran, turn.lease_gone) == ([], True)


WRITES: list[Callable[[TurnContext], Any]] = [
    lambda turn: turn.emit("x"),
    lambda turn: turn.progress(1),
    lambda turn: turn.checkpoint(1),
    lambda turn: turn.step("s", lambda: 1),
    lambda turn: turn.dispatch("child"),
    lambda turn: asyncio.run(turn.aemit("x")),
    lambda turn: asyncio.run(turn.aprogress(1)),
    lambda turn: asyncio.run(turn.acheckpoint(1)),
    lambda turn: asyncio.run(turn.astep("s", lambda: 1)),
    lambda turn: asyncio.run(turn.adispatch("child")),
]


@pytest.mark.parametrize("write", WRITES)
def test_a_fenced_turn_writes_nothing(store: MemoryTurnStore, write: Callable[[TurnContext], Any]) -> None:
    turn = turn_of(store)
    turn.fence()
    with pytest.raises(LeaseLost):
        write(turn)
    assert (store.chunks, store.checkpoints, store.steps, store.jobs) == ([], [], {}, {})


@pytest.mark.parametrize("write", WRITES)
def test_a_turn_whose_lease_another_holds_writes_nothing(
    store: MemoryTurnStore, write: Callable[[TurnContext], Any]
) -> None:
    turn = turn_of(store)
    store.current_epoch = 2
    with pytest.raises(LeaseLost):
        write(turn)
    assert (store.chunks, store.checkpoints, store.steps, store.jobs) == ([], [], {}, {})
    assert turn.lease_gone


def test_a_step_fenced_while_it_runs_is_not_stored(store: MemoryTurnStore) -> None:
    turn = turn_of(store)
    with pytest.raises(LeaseLost):
        turn.step("pay", turn.fence)
    assert store.steps == {}


def test_a_told_turn_raises_past_a_broad_except(store: MemoryTurnStore) -> None:
    turn = turn_of(store)
    turn.raise_if_cancelled()
    before = turn.cancelled
    turn.tell("expired", "the deadline has passed")
    assert (before, turn.cancelled) == (False, True)

    def agent() -> None:
        try:
            turn.raise_if_cancelled()
        except Exception:
            pytest.fail("swallowed")

    with pytest.raises(Cancelled, match="deadline") as stopped:
        agent()
    assert stopped.value.code == "expired"


def test_a_reply_is_read_only_by_a_run_that_goes_on(store: MemoryTurnStore) -> None:
    store.answer = "blue"
    assert turn_of(store).reply is None
    assert turn_of(store, resumed=True).reply == "blue"
    assert asyncio.run(turn_of(store, resumed=True).areply()) == "blue"


def test_children_are_found_again_by_their_call_or_key(store: MemoryTurnStore) -> None:
    def ask(turn: TurnContext) -> list[ChildHandle]:
        return [turn.dispatch("a"), turn.dispatch("b", agent_name="x"), turn.dispatch("c", key="1")]

    first, second = ask(turn_of(store)), ask(turn_of(store, attempt=2))
    assert first == second
    assert len(set(first)) == len(store.jobs) == 3
    assert store.bodies["call:2"] == {"task": "b", "agent_name": "x"}
    assert str(first[0]) == first[0].job_id == "orch-call:1"


def test_a_childs_id_is_not_the_callers_to_choose(store: MemoryTurnStore) -> None:
    with pytest.raises(Invalid, match="key"):
        turn_of(store).dispatch("a", idempotency_key="k")


def test_waiting_leaves_the_run_until_all_children_have_ended(store: MemoryTurnStore) -> None:
    turn = turn_of(store)
    one, two = turn.dispatch("a"), turn.dispatch("b")
    store.end(one, "succeeded", 1)
    with pytest.raises(ChildrenPending) as left:
        turn.wait(two, one)
    assert left.value.job_ids == (two,)
    store.end(two, "failed")
    again = turn_of(store, resumed=True)
    assert [(child["job_id"], child["status"]) for child in again.wait(two, one)] == [
        (two, "failed"),
        (one, "succeeded"),
    ]
    assert again.wait() == again.children == asyncio.run(again.await_children()) == list(store.jobs.values())
    assert turn_of(MemoryTurnStore()).wait() == []


def test_waiting_for_what_cannot_come_is_refused(store: MemoryTurnStore) -> None:
    turn = turn_of(store)
    behind = turn.dispatch("a", session_id="s-1")
    with pytest.raises(Invalid, match="own session"):
        turn.wait(behind)
    with pytest.raises(Invalid, match="handles"):
        turn.wait("orch-of-another")


def test_async_twins_do_their_store_calls_off_the_loops_thread(store: MemoryTurnStore) -> None:
    store.turns = [{"turn_number": 1}]

    async def agent(turn: TurnContext) -> list[Any]:
        await turn.aemit("x")
        await turn.aprogress(1)
        await turn.acheckpoint("c")
        child = await turn.adispatch("child", key="k")
        assert len(await turn.ahistory()) == 1

        async def effect(value: int) -> int:
            await asyncio.sleep(0)
            return value

        steps = [await turn.astep("one", effect, 1), await turn.astep("two", lambda: effect(2))]
        steps += [await turn.astep("three", threading.get_ident), await turn.astep("one", effect, 9)]
        return [*steps, child, await turn.achildren()]

    one, two, three, stored, child, children = asyncio.run(agent(turn_of(store)))
    assert (one, two, stored, child) == (1, 2, 1, "orch-key:k")
    assert three != threading.get_ident()
    assert children == list(store.jobs.values())
    assert threading.get_ident() not in store.threads


def test_nothing_of_the_store_is_held_between_calls(store: MemoryTurnStore) -> None:
    turn = turn_of(store, resumed=True)
    asyncio.run(turn.aemit("x"))
    reads: list[Callable[[TurnContext], Any]] = [lambda t: t.reply, lambda t: t.children, lambda t: len(t.history)]
    for call in [*WRITES, *reads]:
        call(turn)
        assert store.held == set()
    store.current_epoch = 2
    turn.emit("x")
    with pytest.raises(LeaseLost):
        turn.last_words()
    assert store.held == set()


def test_plain_calls_work_on_a_loop_too(store: MemoryTurnStore) -> None:
    async def agent(turn: TurnContext) -> Any:
        turn.emit("x")
        turn.checkpoint(1)
        return turn.step("s", lambda: 2), len(turn.history)

    assert asyncio.run(agent(turn_of(store))) == (2, 0)
    assert (store.chunks, store.checkpoints) == ([("text", {"text": "x"})], [1])
    assert threading.get_ident() not in store.threads


def test_delays_are_seconds_or_timedeltas() -> None:
    assert Retry().after_s is None
    assert Retry(after=2).after_s == 2.0
    assert Snooze(after=timedelta(minutes=1)).after_s == 60.0
    assert Discard("why").reason == "why"


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), True, "5", 1e9, timedelta(days=400)])
def test_a_delay_that_is_none_is_refused(after: Any) -> None:
    with pytest.raises(Invalid, match="after"):
        Snooze(after)
    with pytest.raises(Invalid, match="after"):
        Retry(after)


def test_a_question_is_a_short_text_with_few_choices() -> None:
    asked = NeedsInput("which?", choices=["a", "b"])
    assert (asked.question, asked.choices) == ("which?", ("a", "b"))
    assert NeedsInput("x" * 4096).choices is None


@pytest.mark.parametrize(
    ("question", "choices"),
    [
        ("", None),
        ("  ", None),
        (None, None),
        ("x" * 4097, None),
        ("?", []),
        ("?", "ab"),
        ("?", ["a"] * 21),
        ("?", ["a", ""]),
        ("?", ["a", 1]),
        ("?", ["€" * 1000]),
        ("?", 5),
    ],
)
def test_a_bad_question_is_refused(question: Any, choices: Any) -> None:
    with pytest.raises(Invalid):
        NeedsInput(question, choices)
