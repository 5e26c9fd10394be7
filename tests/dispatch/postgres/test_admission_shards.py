"""The bound is exact whoever posts: the shards' CHECK holds it, the refused leave no row, and the sum is the depth."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from django.db import connection, transaction
from django.db.models import Sum

from dispatch import wiring
from dispatch.authority import WorkAuthority
from dispatch.errors import QueueFull
from dispatch.models import AdmissionShard, QueuedTurn, WorkItem
from dispatch.states import QueueState, Verb
from sessions_app.models import Session
from tests.dispatch.authority import world
from tests.dispatch.postgres import ground
from tests.support.processes import until

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]
BOUND, PRODUCERS, EACH = 100, 40, 50


def bounded(bound: int) -> WorkAuthority:
    return WorkAuthority(transport=wiring.transport(), max_depth=bound)


def depth_is_the_queue() -> int:
    """The depth, held against the rows themselves."""
    counted = QueuedTurn.objects.exclude(state=QueueState.SUSPENDED).count()
    assert AdmissionShard.objects.aggregate(used=Sum("used"))["used"] in (counted, counted or None)
    assert wiring.transport().depth() == counted
    return counted


class Sampler(threading.Thread):
    """Reads the queue's length again and again on a connection of its own."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.samples: list[int] = []
        self.over = threading.Event()

    def run(self) -> None:
        query = "SELECT count(*) FROM agent_dispatch_queue WHERE state <> 6"
        with psycopg.connect(ground.uri(), autocommit=True) as own:
            while not self.over.is_set():
                (count,) = own.execute(query).fetchone() or (0,)
                self.samples.append(count)


@contextlib.contextmanager
def sampled() -> Iterator[list[int]]:
    sampler = Sampler()
    sampler.start()
    try:
        yield sampler.samples
    finally:
        sampler.over.set()
        sampler.join()


def _post(authority: WorkAuthority, name: str) -> bool:
    try:
        authority.submit([world.new(name)])
    except QueueFull:
        return False
    return True


def _produce(authority: WorkAuthority, number: int) -> int:
    admitted = 0
    for n in range(EACH):
        admitted += _post(authority, f"p{number}-{n}")
        connection.close()  # as a request gives its connection back
    return admitted


@pytest.mark.slow
def test_forty_producers_never_pass_the_bound_and_the_refused_leave_no_row() -> None:
    authority = bounded(BOUND)
    with sampled() as samples, ThreadPoolExecutor(PRODUCERS) as pool:
        admitted = sum(pool.map(lambda number: _produce(authority, number), range(PRODUCERS)))
    assert max(samples) <= BOUND
    assert len(samples) > 20
    assert admitted == BOUND
    assert WorkItem.objects.count() == QueuedTurn.objects.count() == Session.objects.count() == BOUND
    assert depth_is_the_queue() == BOUND


@pytest.mark.slow
@pytest.mark.process
def test_producers_in_processes_of_their_own_share_one_bound(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        sampled_counts = stack.enter_context(sampled())
        producers = [
            stack.enter_context(
                ground.python(
                    f"producer {number}",
                    "-m",
                    "tests.dispatch.postgres.producer",
                    *(number, 10, EACH),
                    log=tmp_path / f"{number}.log",
                    env={"AGENT_DISPATCH_MAX_DEPTH": str(BOUND)},
                )
            )
            for number in range(4)
        ]
        for producer in producers:
            assert producer.wait(90) == 0, producer.tail()
    assert max(sampled_counts) <= BOUND
    assert sum(int(producer.text().split()[-1]) for producer in producers) == BOUND
    assert depth_is_the_queue() == BOUND


def test_what_ends_makes_room_for_others_on_any_connection() -> None:
    authority = bounded(3)
    for number in range(3):
        assert _post(authority, f"s{number}")
    for number in range(3, 12):
        assert not _post(authority, f"s{number}")
        connection.close()  # another backend, another shard
        lease = world.claim_one()
        connection.close()
        world.end(lease)
        connection.close()
        assert _post(authority, f"s{number}")
    assert depth_is_the_queue() == 3


def test_resuming_a_suspended_turn_is_never_refused_and_new_ones_are_until_there_is_room() -> None:
    authority = bounded(4)
    asking = [world.add(f"a{number}") for number in range(4)]
    for item in asking:
        world.end(world.claim_item(item), Verb.SUSPEND, code="input", question="which?")
    assert depth_is_the_queue() == 0
    assert all(_post(authority, f"b{number}") for number in range(4))
    for item in asking:
        connection.close()
        assert world.authority().transitions.wake([item.pk], reason="input") == [item.pk]
    assert depth_is_the_queue() == 8
    assert not _post(authority, "c")
    for _ in range(5):
        world.end(world.claim_one())
    assert depth_is_the_queue() == 3
    assert _post(authority, "c")
    assert not _post(authority, "d")


def test_a_row_that_the_repair_makes_again_was_admitted_before_and_is_not_refused() -> None:
    authority = bounded(2)
    assert all(_post(authority, f"s{number}") for number in range(2))
    QueuedTurn.objects.all().delete()
    for _ in range(3):
        connection.close()
        authority.repair()
    assert depth_is_the_queue() == 2
    assert not _post(authority, "s3")


def test_a_lower_bound_holds_from_the_first_dispatch_of_who_was_started_with_it() -> None:
    assert all(_post(bounded(1_000), f"s{number}") for number in range(5))
    lower = bounded(6)
    assert _post(lower, "s5")
    assert not _post(lower, "s6")
    assert _post(bounded(7), "s6")
    assert depth_is_the_queue() == 7


def test_a_refusal_inside_a_callers_transaction_leaves_that_transaction_alive() -> None:
    authority = bounded(2)
    assert all(_post(authority, f"s{number}") for number in range(2))
    with transaction.atomic():
        assert not _post(authority, "s2")
        assert WorkItem.objects.count() == 2
        world.end(world.claim_one())
        assert _post(authority, "s3")
    assert depth_is_the_queue() == 2


def test_a_list_is_admitted_as_far_as_there_is_room() -> None:
    authority = bounded(10)
    answers = authority.submit([world.new(f"s{number}") for number in range(15)])
    assert [answer.error is None for answer in answers] == [True] * 10 + [False] * 5
    assert {type(answer.error) for answer in answers[10:]} == {QueueFull}
    assert depth_is_the_queue() == 10


def test_jobs_with_parents_count_and_are_refused_alike() -> None:
    authority = bounded(2)
    parent = world.add("p")
    (child,) = authority.submit([world.new("c", dependencies=[parent.job_id])])
    assert child.error is None
    with pytest.raises(QueueFull):
        authority.submit([world.new("d", dependencies=[parent.job_id])])
    assert depth_is_the_queue() == 2


def test_a_manual_retry_counts_and_is_refused_when_the_queue_is_full() -> None:
    item = world.add("s0")
    world.run(item, Verb.FAILED)
    authority = bounded(2)
    assert all(_post(authority, f"s{number}") for number in range(1, 3))
    with pytest.raises(QueueFull):
        authority.transitions.retry(item.pk)
    world.end(world.claim_one())
    connection.close()
    authority.transitions.retry(item.pk)
    assert depth_is_the_queue() == 2


def test_a_dispatch_that_rolls_back_gives_its_place_back() -> None:
    authority = bounded(1)
    with transaction.atomic():
        assert _post(authority, "s0")
        transaction.set_rollback(True)
    assert depth_is_the_queue() == 0
    assert _post(authority, "s1")


def test_two_who_dispatch_inside_long_transactions_cannot_share_the_last_place() -> None:
    authority = bounded(1)
    assert not until(lambda: _both_at_once(authority), 30, "the race is decided") - {1}
    assert depth_is_the_queue() == 1


def _both_at_once(authority: WorkAuthority) -> set[int]:
    inside = threading.Barrier(2, timeout=5)

    def one(number: int) -> int:
        try:
            with contextlib.suppress(threading.BrokenBarrierError):
                inside.wait()
            with transaction.atomic():
                return int(_post(authority, f"s{number}"))
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        return {sum(pool.map(one, range(2)))}
