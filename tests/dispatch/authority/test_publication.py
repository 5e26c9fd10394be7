"""A dispatch and the broker's word on it: what the broker refuses leaves nothing behind, and stops nobody."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from django.db import transaction

from dispatch.errors import Invalid, QueueUnavailable
from dispatch.models import WorkItem
from dispatch.ports import Lease
from dispatch.states import Verb
from tests.dispatch.authority import world
from tests.dispatch.authority.test_deliveries import Process, process
from tests.support.mock_broker import PRODUCE, MockBroker

__all__ = ["process"]  # the fixture

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


@pytest.fixture
def running(process: Process) -> Lease:
    """The turn of session `s` that runs."""
    process.authority.submit([world.new("warm-up")])  # the client's first message asks for more than itself
    process.deliver(world.add("s"))
    (lease,) = process.claim(want=1)
    return lease


def is_told(process: Process, lease: Lease) -> bool:
    return bool(process.authority.cancels(leases=[lease.fence]).cancelled)


def test_what_the_broker_refuses_leaves_no_row_and_interrupts_nobody(
    process: Process, broker: MockBroker, running: Lease
) -> None:
    before = set(WorkItem.objects.values_list("job_id", flat=True))
    broker.fail(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(QueueUnavailable):
        process.authority.submit([world.new("s", on_busy="interrupt")])
    assert set(WorkItem.objects.values_list("job_id", flat=True)) == before
    assert not is_told(process, running)
    process.step([running], want=0)
    assert WorkItem.objects.get(pk=running.item_id).status == "succeeded"
    world.check()


def test_in_a_list_only_what_the_broker_has_interrupts(process: Process, broker: MockBroker, running: Lease) -> None:
    process.deliver(world.add("other"))
    (other,) = process.claim(want=1)
    broker.fail(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    answers = process.authority.submit([world.new(name, on_busy="interrupt") for name in ("s", "other")])
    told = {"s": is_told(process, running), "other": is_told(process, other)}
    assert told == {answer.session_id: answer.error is None for answer in answers}
    assert False in told.values()


def test_what_the_broker_has_interrupts_the_running_turn_and_comes_next(process: Process, running: Lease) -> None:
    (answer,) = process.authority.submit([world.new("s", on_busy="interrupt")])
    assert is_told(process, running)
    (following,) = process.step([running], want=1, verb=Verb.RETRY).claimed
    assert following.job_id == answer.job_id
    assert WorkItem.objects.get(pk=running.item_id).cancel_reason == "interrupted by a newer turn"
    world.check()


def test_in_a_callers_transaction_the_interruption_commits_or_goes_with_it(process: Process, running: Lease) -> None:
    with world.undone():
        process.authority.submit([world.new("s", on_busy="interrupt")])
    assert not is_told(process, running)
    with transaction.atomic():
        process.authority.submit([world.new("s", on_busy="interrupt")])
    assert is_told(process, running)


def test_a_repeat_interrupts_the_turn_that_its_first_sender_died_before_telling(
    process: Process, running: Lease
) -> None:
    item = world.new("s", on_busy="interrupt", fingerprint={"task": "1"})
    process.authority._submission.submit([item])  # what is committed when the sender dies
    process.authority.submit([world.new("s", job_id=item.job_id, on_busy="interrupt", fingerprint={"task": "2"})])
    assert not is_told(process, running), "another body under the same key is a conflict"
    (answer,) = process.authority.submit([item])
    assert answer.existing
    assert is_told(process, running)


def test_a_repeat_does_not_interrupt_a_turn_that_began_after_it(process: Process, running: Lease) -> None:
    world.add("s")
    item = world.new("s", on_busy="interrupt", fingerprint={"task": "1"})
    process.authority.submit([item])
    (between,) = process.step([running], want=1).claimed
    process.authority.submit([item])
    assert not is_told(process, between)


def test_what_is_refused_for_its_parents_interrupts_nobody(process: Process, running: Lease) -> None:
    for authority in (process.authority, world.authority()):
        lost = world.new("s", on_busy="interrupt", dependencies=("orch-" + "7" * 32,))
        refused, taken = authority.submit([lost, world.new("elsewhere")])
        assert isinstance(refused.error, Invalid)
        assert taken.error is None
        assert not is_told(process, running)
