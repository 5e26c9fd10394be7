"""What waits for other jobs is let go, or cancelled with the reason, right after they have ended."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from dispatch import states
from dispatch.errors import NotRetryable
from dispatch.models import WorkItem, WorkItemDependency
from dispatch.states import ErrorCode, QueueState, Verb
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


def chain() -> list[WorkItem]:
    """A ← B ← C ← D, each in a session of its own."""
    items = [world.add("a")]
    for name in "bcd":
        items.append(world.add(name, dependencies=[items[-1].job_id]))
    return items


def statuses(items: list[WorkItem]) -> list[str]:
    return [world.fresh(item).status for item in items]


def _fail(item: WorkItem) -> None:
    world.run(item, Verb.FAILED, code="agent_error", message="it broke")


def _dead_letter(item: WorkItem) -> None:
    world.run(item, Verb.DEAD_LETTER, code="agent_error", message="it broke")


def _cancel_queued(item: WorkItem) -> None:
    world.authority().transitions.cancel([item.pk], code="cancelled")


def _cancel_running(item: WorkItem) -> None:
    lease = world.claim_item(item)
    world.authority().transitions.cancel([item.pk], code="cancelled")
    world.end(lease, Verb.CANCELLED, code="cancelled")


def _expire(item: WorkItem) -> None:
    world.pass_deadline(item)
    world.authority().transitions.expire()


def _kill(item: WorkItem) -> None:
    world.authority().transitions.kill([item.session_id], by="me", reason="")


def _lose(item: WorkItem) -> None:
    WorkItem.objects.filter(pk=item.pk).update(max_attempts=1)
    world.rescue(world.claim_item(item))


BAD_ENDS = [
    (_fail, states.FAILED),
    (_dead_letter, states.DEAD_LETTER),
    (_cancel_queued, states.CANCELLED),
    (_cancel_running, states.CANCELLED),
    (_expire, states.CANCELLED),
    (_kill, states.CANCELLED),
    (_lose, states.DEAD_LETTER),
]


@pytest.mark.parametrize(("ends", "status"), BAD_ENDS, ids=[ends.__name__[1:] for ends, _ in BAD_ENDS])
def test_a_bad_end_cancels_the_whole_chain_with_the_reason(ends: object, status: str) -> None:
    items = chain()
    ends(items[0])  # type: ignore[operator]
    assert statuses(items) == [status] + [states.CANCELLED] * 3
    for parent, parent_status, item in zip(items, [status, "cancelled", "cancelled"], items[1:], strict=False):
        outcome = world.outcome_of(item)
        assert outcome.error_code == ErrorCode.DEPENDENCY
        assert outcome.error_message == f"dependency {parent.job_id} ended as {parent_status}"
    world.check()


def test_each_of_a_chain_runs_once_right_after_its_parent() -> None:
    items = chain()
    for item in items:
        (lease,) = world.claim(want=5)
        assert lease.job_id == item.job_id
        world.end(lease)
        world.check()
    assert statuses(items) == [states.SUCCEEDED] * 4
    assert [world.fresh(item).epoch for item in items] == [1] * 4


def test_a_job_with_two_parents_waits_for_both_and_one_bad_end_is_enough() -> None:
    first, second = world.add("a"), world.add("b")
    both = [first.job_id, second.job_id]
    item, other = world.add("c", dependencies=both), world.add("d", dependencies=both)
    world.run(first)
    assert statuses([item, other]) == [states.SUBMITTED] * 2
    _fail(second)
    assert statuses([item, other]) == [states.CANCELLED] * 2
    world.check()


@pytest.mark.parametrize("end", [Verb.SUCCEEDED, Verb.FAILED, Verb.CANCELLED, Verb.DEAD_LETTER])
def test_a_parent_that_has_already_ended_decides_at_once(end: str) -> None:
    parent = world.run(world.add("a"), end, code="agent_error")
    item = world.add("b", dependencies=[parent.job_id])
    following = world.add("b")
    expected = states.READY if end == Verb.SUCCEEDED else states.CANCELLED
    assert item.status == expected
    world.check()
    assert world.claim_one().job_id == (item if end == Verb.SUCCEEDED else following).job_id


def test_later_turns_of_the_session_wait_behind_a_turn_that_waits_for_its_parent() -> None:
    parent = world.add("a")
    item, following = world.add("b", dependencies=[parent.job_id]), world.add("b")
    assert [lease.job_id for lease in world.claim(want=5)] == [parent.job_id]
    row = world.row_of(following)
    assert row is not None
    assert row.state == QueueState.BEHIND
    world.authority().transitions.cancel([item.pk], code="cancelled")
    assert [lease.job_id for lease in world.claim(want=5)] == [following.job_id]
    world.check()


def test_a_parent_in_the_same_session_is_simply_earlier() -> None:
    parent = world.add()
    item = world.add(dependencies=[parent.job_id])
    world.run(parent)
    assert world.claim_one().job_id == item.job_id
    world.check()


def test_a_dependent_of_a_pruned_parent_is_cancelled_by_the_tick_with_the_reason() -> None:
    parent = world.add("a")
    items = [world.add("b", dependencies=[parent.job_id])]
    items.append(world.add("c", dependencies=[items[0].job_id]))
    world.authority().transitions.pause([parent.session_id], by="me", reason="")
    parent.delete()
    world.authority().transitions.release_waiting()
    assert statuses(items) == [states.CANCELLED] * 2
    assert world.outcome_of(items[0]).error_code == ErrorCode.DEPENDENCY
    assert world.outcome_of(items[0]).error_message == "its dependency is gone"


def test_a_job_whose_other_parent_was_pruned_still_waits_for_the_one_that_is_there() -> None:
    gone, parent = world.run(world.add("a")), world.add("b")
    item = world.add("c", dependencies=[gone.job_id, parent.job_id])
    gone.delete()
    world.authority().transitions.release_waiting()
    assert world.fresh(item).status == states.SUBMITTED
    world.run(parent)
    assert world.fresh(item).status == states.READY


@pytest.mark.parametrize("end", [Verb.SUCCEEDED, Verb.FAILED])
def test_the_tick_lets_go_what_a_crash_after_the_parents_end_left_waiting(end: str) -> None:
    """The parent's commit has happened, the transaction of its own that follows has not."""
    parent, item = world.run(world.add("a"), end, code="agent_error"), world.add("b")
    WorkItem.objects.filter(pk=item.pk).update(status=states.SUBMITTED)
    WorkItemDependency.objects.create(work_item=item, parent=parent)
    world.rewrite(item.pk, state=QueueState.WAITING)
    assert world.authority().transitions.release_waiting() == 1
    assert world.fresh(item).status == (states.READY if end == Verb.SUCCEEDED else states.CANCELLED)
    assert world.authority().transitions.release_waiting() == 0


def test_a_dependent_is_not_lost_between_its_admission_and_its_parents_end() -> None:
    for number in range(15):
        parent = world.add(f"p{number}")
        lease = world.claim_item(parent)
        start = threading.Barrier(2)

        def end(lease: object = lease, start: threading.Barrier = start) -> None:
            try:
                start.wait(20)
                world.end(lease)  # type: ignore[arg-type]
            finally:
                connection.close()

        thread = threading.Thread(target=end)
        thread.start()
        start.wait(20)
        item = world.add(f"c{number}", dependencies=[parent.job_id])
        thread.join(30)
        assert world.fresh(item).status == states.READY
    world.check()


def test_a_cancelled_dependent_can_be_retried_when_its_parent_was_retried_and_succeeded() -> None:
    parent = world.add("a")
    item = world.add("b", dependencies=[parent.job_id])
    _fail(parent)
    with pytest.raises(NotRetryable):
        world.authority().transitions.retry(item.pk)
    world.authority().transitions.retry(parent.pk)
    world.authority().transitions.retry(item.pk)
    assert statuses([parent, item]) == [states.READY, states.SUBMITTED]
    world.run(parent)
    assert world.claim_one().job_id == item.job_id
    world.check()
