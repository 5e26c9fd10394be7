"""What every transport does alike: the bound, transactions, waking, closing."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from django.db import connection

from dispatch.errors import QueueFull
from dispatch.ports import Transport
from dispatch.states import QueueState
from tests.dispatch.transports.queues import NOW, OPEN, SERVES, at_once, counted, publish, receive, row, undone

pytestmark = [pytest.mark.store, pytest.mark.django_db(transaction=True)]


# -- depth and bound ---------------------------------------------------------------------------------------------------
def test_the_depth_is_what_the_bound_counts_unless_a_broker_has_a_backlog_of_its_own(queue: Transport) -> None:
    publish(queue, row(1), row(2), row(3, state=QueueState.SUSPENDED))
    assert counted(queue) == 2
    assert queue.depth() == (2 if queue.envelopes is None else 0), "no envelope was sent: the group lags by none"


def test_the_bound_counts_all_but_suspended_rows(queue: Transport) -> None:
    publish(queue, *[row(n, state=n) for n in range(7)])
    assert counted(queue) == 6
    assert queue.room(10) == 4
    assert queue.room(3) == 0
    with queue.transaction():
        queue.promote([(1, QueueState.SUSPENDED, None, None), (6, QueueState.CLAIMABLE, None, None)])
    assert counted(queue) == 6
    with queue.transaction():
        queue.ack([1, 0])
    assert counted(queue) == 5
    publish(queue, row(1, state=QueueState.SUSPENDED), row(6, state=QueueState.SUSPENDED))
    assert counted(queue) == 4


def test_a_list_that_does_not_fit_is_refused_as_a_whole(queue: Transport) -> None:
    publish(queue, row(1), bound=3)
    with pytest.raises(QueueFull):
        publish(queue, row(2), row(3), row(4), bound=3)
    assert queue.rows([1, 2, 3, 4]).keys() == {1}
    publish(queue, row(2), row(3), bound=3)
    assert counted(queue) == 3


def test_the_bound_holds_to_the_row_while_producers_race(queue: Transport) -> None:
    bound = 20

    def produce(first: int) -> int:
        admitted = 0
        for number in range(10):
            try:
                publish(queue, row(first + number), bound=bound)
                admitted += 1
            except QueueFull:
                assert counted(queue) == bound
        return admitted

    answers = at_once([lambda p=p: produce(1_000 * p) for p in range(1, 7)])  # type: ignore[misc]
    assert sum(answers) == counted(queue) == bound


def test_room_that_was_looked_at_in_a_transaction_is_there_until_its_end(queue: Transport) -> None:
    def produce(first: int) -> int:
        with queue.transaction():
            room = queue.room(30)
            rows = [row(first + n) for n in range(min(room, 8))]
            try:
                queue.publish(rows, bound=30)
            except QueueFull:
                assert queue.capabilities.joins_state_transaction  # there the bound is held by the store, not the room
                return 0
            return len(rows)

    answers = at_once([lambda p=p: produce(1_000 * p) for p in range(1, 7)])  # type: ignore[misc]
    assert sum(answers) == counted(queue) <= 30
    if not queue.capabilities.joins_state_transaction:
        assert counted(queue) == 30


# -- transactions ------------------------------------------------------------------------------------------------------
def test_a_transaction_that_fails_leaves_all_as_it_was(queue: Transport) -> None:
    rows = [row(1), row(2), row(3, state=QueueState.SUSPENDED)]
    publish(queue, *rows)
    with undone(queue):
        queue.receive(want=1, serves=SERVES, gates=OPEN, cursor="", now=NOW)
        queue.ack([2])
        queue.publish([row(4)])
        queue.promote([(3, QueueState.CLAIMABLE, None, None)])
    assert queue.page(after=0, limit=10) == rows
    assert counted(queue) == 2


def test_transactions_nest_and_end_with_the_outermost(queue: Transport) -> None:
    with undone(queue), queue.transaction():
        queue.publish([row(1)])
    assert counted(queue) == 0
    with queue.transaction(), queue.transaction():
        queue.publish([row(1)])
    assert counted(queue) == 1


# -- waking ------------------------------------------------------------------------------------------------------------
def test_every_listener_wakes_within_a_tenth_of_a_second(queue: Transport) -> None:
    listeners = [queue.listener() for _ in range(3)]
    took: list[float] = []
    for _ in range(5):
        waiting = threading.Semaphore(0)
        ended: list[float] = []
        begun: list[float] = []

        def wait(listener: Any, waiting: threading.Semaphore = waiting, ended: list[float] = ended) -> bool:
            waiting.release()
            woken: bool = listener.wait(10.0)
            ended.append(time.monotonic())
            return woken

        def wake(
            waiting: threading.Semaphore = waiting, ended: list[float] = ended, begun: list[float] = begun
        ) -> bool:
            for _ in listeners:
                assert waiting.acquire(timeout=20)
            begun.append(time.monotonic())
            while len(ended) < len(listeners):  # one of them may not have come to its wait yet
                queue.wake()
                time.sleep(0.005)
            return True

        assert at_once([*[lambda x=x, wait=wait: wait(x) for x in listeners], wake]) == [True] * 4
        took += [end - begun[0] for end in ended]
    for listener in listeners:
        listener.close()
    assert sorted(took)[len(took) // 2] < 0.1


def test_a_wait_that_nobody_ends_lasts_as_long_as_asked_for(queue: Transport) -> None:
    listener = queue.listener()
    try:
        listener.wait(0)  # one that begins to listen may have missed something, and says so
        begun = time.monotonic()
        assert listener.wait(0.05) is False
        assert 0.04 < time.monotonic() - begun < 5
    finally:
        listener.close()


def test_a_transport_that_was_closed_can_be_used_again(queue: Transport) -> None:
    publish(queue, row(1))
    queue.wait(0)
    queue.close()
    assert receive(queue) == [1]
    queue.wake()
    queue.close()
    queue.close()
    assert counted(queue) == 1


def test_a_transport_says_what_it_can_do(queue: Transport) -> None:
    backends = {"memory": "MemoryQueueBackend", "sqlite": "SQLiteQueueBackend", "postgres": "PostgresQueueBackend"}
    backends["kafka"] = "KafkaQueueBackend"
    assert queue.backend_name == backends[queue.name]
    assert queue.capabilities.exact_admission
    assert (queue.envelopes is not None) == (queue.name == "kafka")
    rows_in_store = queue.name == "postgres" or (queue.name == "kafka" and connection.vendor == "postgresql")
    assert queue.capabilities.joins_state_transaction == rows_in_store
    assert queue.capabilities.durable == (queue.name != "memory")
