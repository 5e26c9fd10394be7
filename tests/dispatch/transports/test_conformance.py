"""What every transport does alike, in memory, in a SQLite file, in a Postgres table: rows, and who is served."""

from __future__ import annotations

import time

import pytest

from dispatch.ports import Gates, Serves, Transport
from dispatch.states import QueueState
from tests.dispatch.transports.queues import KIND, NOW, at_once, counted, publish, receive, row

pytestmark = [pytest.mark.store, pytest.mark.django_db(transaction=True)]


# -- rows in and out ---------------------------------------------------------------------------------------------------
def test_a_row_comes_out_as_it_went_in(queue: Transport) -> None:
    rows = [
        row(1),
        row(2, tenant="t2", state=QueueState.DUE_LATER, due_at=NOW + 5.25, deadline=NOW + 9.5, priority=0),
        row(3, state=QueueState.SUSPENDED, kind="goal_loop", agent_name="other:v1@x", rank=NOW + 0.125),
    ]
    publish(queue, *rows)
    assert queue.rows([3, 1, 2, 4]) == {r.item_id: r for r in rows}
    assert queue.page(after=0, limit=10) == rows


def test_a_claimed_row_is_hidden_until_it_is_released_and_an_acked_one_is_gone(queue: Transport) -> None:
    publish(queue, row(1), row(2))
    assert receive(queue) == [1]
    assert queue.rows([1])[1].state == QueueState.CLAIMED
    assert receive(queue, 5) == [2]
    assert receive(queue, 5) == []
    with queue.transaction():
        queue.ack([2])
        queue.release([1])
    assert queue.rows([1, 2]).keys() == {1}
    assert receive(queue, 5) == [1]


def test_a_release_with_a_delay_waits_for_its_time(queue: Transport) -> None:
    publish(queue, row(1))
    receive(queue)
    with queue.transaction():
        queue.release([1], delay_s=60)
    held = queue.rows([1])[1]
    assert held.state == QueueState.DUE_LATER
    assert held.due_at is not None
    assert 50 < held.due_at - time.time() <= 60
    assert receive(queue) == []
    assert queue.due(now=time.time() + 30, limit=5) == []
    assert queue.due(now=time.time() + 90, limit=5) == [1]


def test_only_what_is_in_hand_is_released(queue: Transport) -> None:
    publish(queue, row(1, state=QueueState.PAUSED), row(2))
    with queue.transaction():
        queue.release([1, 2, 3])
    assert {i: r.state for i, r in queue.rows([1, 2]).items()} == {1: QueueState.PAUSED, 2: QueueState.CLAIMABLE}


def test_publishing_again_overwrites_and_acking_again_is_harmless(queue: Transport) -> None:
    publish(queue, row(1, state=QueueState.BEHIND))
    publish(queue, row(1, rank=NOW - 1, deadline=NOW + 5))
    assert counted(queue) == 1
    assert queue.rows([1])[1] == row(1, rank=NOW - 1, deadline=NOW + 5)
    for _ in range(2):
        with queue.transaction():
            queue.ack([1, 1, 7])
    assert counted(queue) == 0


@pytest.mark.parametrize("state", [s for s in range(7) if s != QueueState.CLAIMABLE])
def test_what_is_not_claimable_is_not_received(queue: Transport, state: int) -> None:
    publish(queue, row(1, state=state))
    assert receive(queue, 5) == []


def test_a_promotion_moves_rows_that_exist_and_keeps_a_place_without_a_rank(queue: Transport) -> None:
    publish(queue, row(1, state=QueueState.BEHIND), row(2, state=QueueState.PAUSED))
    with queue.transaction():
        queue.promote(
            [
                (1, QueueState.CLAIMABLE, None, NOW - 100),
                (2, QueueState.DUE_LATER, NOW + 5, None),
                (3, QueueState.CLAIMABLE, None, None),
            ]
        )
    found = queue.rows([1, 2, 3])
    assert (found[1].state, found[1].rank) == (QueueState.CLAIMABLE, NOW - 100)
    assert (found[2].state, found[2].due_at, found[2].rank) == (QueueState.DUE_LATER, NOW + 5, NOW + 2)
    assert 3 not in found


def test_pages_show_each_row_once_in_order(queue: Transport) -> None:
    publish(queue, *[row(n) for n in range(1, 26)])
    seen, after = [], 0
    while page := queue.page(after=after, limit=10):
        seen += [r.item_id for r in page]
        after = page[-1].item_id
    assert seen == list(range(1, 26))


def test_due_rows_come_by_their_time_and_no_more_than_asked_for(queue: Transport) -> None:
    due = [row(n, state=QueueState.DUE_LATER, due_at=NOW - n) for n in range(1, 5)]
    publish(queue, *due, row(9, state=QueueState.DUE_LATER, due_at=NOW + 1), row(10, due_at=NOW - 9))
    assert queue.due(now=NOW, limit=10) == [4, 3, 2, 1]
    assert queue.due(now=NOW, limit=2) == [4, 3]


def test_rows_past_their_deadline_are_found_unless_they_run(queue: Transport) -> None:
    late = [row(n, state=n, deadline=NOW - n) for n in range(7)]
    publish(queue, *late, row(8, deadline=NOW + 1), row(9))
    assert queue.expired(now=NOW, limit=10) == [6, 5, 4, 2, 1, 0]
    assert queue.expired(now=NOW, limit=2) == [6, 5]


# -- who is served -----------------------------------------------------------------------------------------------------
def test_the_best_rank_goes_first_and_then_the_older_item(queue: Transport) -> None:
    publish(queue, row(1, rank=NOW + 5), row(2, rank=NOW), row(3, rank=NOW + 5), row(4, rank=NOW - 300))
    assert receive(queue, 2) == [4, 2]
    assert receive(queue, 9) == [1, 3]


def test_a_row_past_its_deadline_is_passed_over(queue: Transport) -> None:
    publish(queue, row(1, deadline=NOW - 1), row(2, deadline=NOW), row(3, deadline=NOW + 1))
    assert receive(queue, 5) == [3]


def test_only_the_lanes_that_are_served_are_received(queue: Transport) -> None:
    publish(queue, row(1, agent_name="a"), row(2, agent_name="b"), row(3, agent_name="b", kind="goal_loop"))
    assert receive(queue, 5, serves=Serves(agents=(), kinds=(KIND,))) == []
    assert receive(queue, 5, serves=Serves(agents=("b",), kinds=())) == []
    assert receive(queue, 5, serves=Serves(agents=("b", "c"), kinds=(KIND,))) == [2]
    assert receive(queue, 5, serves=Serves(agents=("a", "b"), kinds=("goal_loop", KIND))) == [1, 3]


def test_lanes_are_merged_by_rank(queue: Transport) -> None:
    publish(queue, *[row(n, agent_name="ab"[n % 2], rank=NOW - n) for n in range(1, 9)])
    assert receive(queue, 3, serves=Serves(agents=("a", "b"), kinds=(KIND,))) == [8, 7, 6]


@pytest.mark.parametrize(
    ("gates", "left"),
    [
        (Gates(fleet=True), []),
        (Gates(kinds=frozenset({KIND})), [3]),
        (Gates(agents=frozenset({"echo"})), [2]),
        (Gates(tenants=frozenset({"t1"})), [4]),
        (Gates(tenants=frozenset({"t9"}), agents=frozenset({"nobody"})), [1, 2, 3, 4]),
    ],
    ids=["fleet", "kind", "agent", "tenant", "others"],
)
def test_a_gate_shuts_what_it_names(queue: Transport, gates: Gates, left: list[int]) -> None:
    publish(queue, row(1), row(2, agent_name="other"), row(3, kind="goal_loop"), row(4, tenant="t2"))
    serves = Serves(agents=("echo", "other"), kinds=(KIND, "goal_loop"))
    assert sorted(receive(queue, 9, serves=serves, gates=gates)) == left


def test_tenants_are_served_in_turn_after_the_last_one_served(queue: Transport) -> None:
    publish(queue, *[row(100 * t + n, tenant=f"t{t}") for t in range(1, 4) for n in range(5)])
    served, cursor = [], ""
    for _ in range(6):
        (item_id,) = receive(queue, 1, cursor=cursor)
        cursor = f"t{item_id // 100}"
        served.append(item_id)
    assert served == [100, 200, 300, 101, 201, 301]


def test_a_batch_is_shared_between_the_tenants_and_the_rest_goes_to_who_has_more(queue: Transport) -> None:
    publish(queue, *[row(100 + n, tenant="t1") for n in range(9)], row(200, tenant="t2"), row(300, tenant="t3"))
    assert sorted(receive(queue, 4)) == [100, 101, 200, 300]


def test_one_job_of_a_quiet_tenant_waits_for_no_flood_of_another(queue: Transport) -> None:
    publish(queue, *[row(n, tenant="busy", priority=0, rank=NOW - 900) for n in range(1, 1_001)])
    publish(queue, row(5_000, tenant="quiet", priority=3, rank=NOW + 900))
    assert receive(queue, 1, cursor="busy") == [5_000]


def test_a_batch_is_never_larger_than_wanted_and_never_twice_the_same(queue: Transport) -> None:
    publish(queue, *[row(n, tenant=f"t{n % 7}", agent_name="ab"[n % 2]) for n in range(1, 101)])
    seen: list[int] = []
    cursor = ""
    while got := receive(queue, 6, serves=Serves(agents=("a", "b"), kinds=(KIND,)), cursor=cursor):
        assert len(got) <= 6
        seen += got
        cursor = f"t{got[-1] % 7}"
    assert sorted(seen) == list(range(1, 101))


def test_racing_consumers_receive_each_row_once(queue: Transport) -> None:
    publish(queue, *[row(n, tenant=f"t{n % 3}") for n in range(1, 61)])

    def consume() -> list[int]:
        mine: list[int] = []
        misses = 0
        while misses < 3:
            got = receive(queue, 4)
            mine += got
            misses = 0 if got else misses + 1
        return mine

    answers = at_once([consume] * 4)
    assert sorted(item_id for mine in answers for item_id in mine) == list(range(1, 61))
