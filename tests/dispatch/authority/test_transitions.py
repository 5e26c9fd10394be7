"""Cancel, manual retry, lost workers: what each does to a job, its session and the turns behind it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dispatch import states
from dispatch.clock import store_now
from dispatch.errors import NotRetryable, QueueFull
from dispatch.models import Question, StepResult, WorkItem
from dispatch.states import ErrorCode, QueueState, Verb
from sessions_app.models import Session
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

GOING_BACK = [
    (Verb.RETRY, {"delay_s": 60.0, "code": "agent_error", "message": "again"}),
    (Verb.RETRY, {"code": "agent_error", "message": "again"}),
    (Verb.SNOOZE, {"delay_s": 60.0}),
    (Verb.HANDBACK, {}),
    (Verb.SUSPEND, {"code": "input", "question": "which?"}),
    (Verb.SUSPEND, {"code": "children"}),
]


# -- cancel ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("verb", "more"), GOING_BACK, ids=lambda value: str(value))
def test_a_requested_cancel_wins_over_every_way_back_to_the_queue(verb: str, more: dict[str, object]) -> None:
    item, following = world.add(), world.add()
    lease = world.claim_item(item)
    assert world.authority().transitions.cancel([item.pk], code="cancelled", reason="enough") == {item.pk: "requested"}
    (settled,) = world.end(lease, verb, **more).settled
    assert (settled.status, settled.verb) == (states.CANCELLED, verb)
    outcome = world.outcome_of(item)
    assert (outcome.error_code, outcome.error_message) == ("cancelled", "enough")
    assert not Question.objects.exists()
    assert world.claim_one().job_id == following.job_id
    world.check()


def test_a_requested_cancel_wins_over_a_rescue_too() -> None:
    item, following = world.add(), world.add()
    lease = world.claim_item(item)
    world.authority().transitions.cancel([item.pk], code="cancelled", reason="enough")
    assert world.rescue(lease) == 1
    assert world.fresh(item).status == states.CANCELLED
    assert world.events(item) == ["submitted", "running", "cancel_requested", "cancelled"]
    assert world.claim_one().job_id == following.job_id
    world.check()


def test_a_result_that_came_before_the_stop_was_heard_stands() -> None:
    item = world.add()
    lease = world.claim_item(item)
    world.authority().transitions.cancel([item.pk], code="cancelled")
    assert world.end(lease, result="done").settled[0].status == states.SUCCEEDED


def test_cancelling_a_queued_turn_ends_it_and_is_harmless_when_repeated() -> None:
    item = world.add()
    cancel = world.authority().transitions.cancel
    assert cancel([item.pk], code="cancelled", reason="enough") == {item.pk: "done"}
    item = world.fresh(item)
    assert item.cancel_requested_at is not None
    assert item.stopped_at is not None
    before = WorkItem.objects.filter(pk=item.pk).values().get()
    assert cancel([item.pk], code="cancelled", reason="more") == {item.pk: "too_late"}
    assert WorkItem.objects.filter(pk=item.pk).values().get() == before
    world.check()


def test_the_first_cancel_of_a_running_turn_gives_the_reason() -> None:
    item = world.add()
    lease = world.claim_item(item)
    for reason in ("first", "second"):
        world.authority().transitions.cancel([item.pk], code="cancelled", reason=reason)
    assert world.events(item).count("cancel_requested") == 1
    world.end(lease, Verb.CANCELLED, code="cancelled", message="stopped")
    assert world.outcome_of(item).error_message == "first"


def test_cancelling_a_suspended_turn_withdraws_its_question_and_lets_the_next_go() -> None:
    item, following = world.add(), world.add()
    world.run(item, Verb.SUSPEND, code="input", question="which?")
    assert world.session_of(item).status == "needs_input"
    assert world.claim() == []
    assert world.authority().transitions.cancel([item.pk], code="cancelled") == {item.pk: "done"}
    assert Question.objects.get().withdrawn_at is not None
    lease = world.claim_one()
    assert (lease.job_id, lease.turn_number) == (following.job_id, 2)
    world.check()


def test_cancelling_in_the_middle_of_a_session_leaves_the_others_in_order() -> None:
    turns = [world.add() for _ in range(5)]
    world.authority().transitions.cancel([turns[1].pk, turns[3].pk], code="cancelled")
    ran = []
    for _ in range(3):
        lease = world.claim_one()
        ran.append(lease.job_id)
        world.end(lease)
        world.check()
    assert ran == [turns[0].job_id, turns[2].job_id, turns[4].job_id]


# -- lost workers ------------------------------------------------------------------------------------------------------
def test_a_lost_worker_costs_an_attempt_and_the_turn_runs_again_at_once() -> None:
    item = world.add(max_attempts=2)
    world.rescue(world.claim_item(item))
    item = world.fresh(item)
    assert (item.status, item.attempt, item.due_at) == (states.READY, 1, None)
    assert world.claim_one("w2").attempt == 2
    world.check()


def test_a_turn_whose_worker_dies_each_time_is_dead_lettered_with_the_reason() -> None:
    item = world.add(max_attempts=3)
    for _ in range(3):
        world.rescue(world.claim_one())
    assert world.fresh(item).status == states.DEAD_LETTER
    outcome = world.outcome_of(item)
    assert outcome.error_code == ErrorCode.WORKER_LOST
    assert "worker lost" in outcome.error_message
    assert world.session_of(item).status == "failed"
    world.check()


def test_a_turn_that_must_not_run_twice_fails_when_its_worker_is_lost() -> None:
    item = world.add(on_worker_lost="fail")
    world.rescue(world.claim_one())
    assert (world.fresh(item).status, world.outcome_of(item).error_code) == (states.FAILED, ErrorCode.WORKER_LOST)


def test_a_hand_back_and_a_snooze_cost_no_attempt_and_a_retry_does() -> None:
    item = world.add()
    for verb, attempt in ((Verb.HANDBACK, 0), (Verb.SNOOZE, 0), (Verb.RETRY, 1), (Verb.HANDBACK, 1)):
        assert world.run(item, verb, code="agent_error").attempt == attempt


def test_a_hand_back_keeps_its_place_before_what_was_queued_later() -> None:
    first = world.add("a")
    world.add("b")
    world.run(first, Verb.HANDBACK)
    assert world.claim_one().job_id == first.job_id


def test_later_turns_wait_while_a_turn_waits_for_its_retry_and_other_sessions_do_not() -> None:
    item, following = world.add("a"), world.add("a")
    other = world.add("b")
    world.run(item, Verb.RETRY, delay_s=60.0, code="agent_error", message="again")
    assert [lease.job_id for lease in world.claim(want=5)] == [other.job_id]
    world.authority().transitions.due()
    assert world.claim(want=5) == []
    world.come_due(item)
    assert world.authority().transitions.due() == 1
    (lease,) = world.claim(want=5)
    assert (lease.job_id, lease.attempt, lease.turn_number) == (item.job_id, 2, 1)
    world.end(lease)
    assert world.claim_one().job_id == following.job_id
    world.check()


def test_an_envelope_that_was_deleted_and_a_lease_without_an_end_are_recovered_by_the_ticks() -> None:
    ready, running = world.add("a"), world.add("b")
    world.claim_item(running)
    with world.transport().transaction():
        world.transport().ack([ready.pk])
    WorkItem.objects.filter(pk=running.pk).update(lease_expires_at=None)
    found = world.authority().astray(limit=100)
    assert found == {"items_without_envelope": {ready.pk}}
    assert world.authority().repair() == 1
    assert world.authority().transitions.rescue() == 1
    assert world.authority().astray(limit=100) == {}
    assert sorted(lease.job_id for lease in world.claim(want=5)) == sorted([ready.job_id, running.job_id])
    world.check()


@pytest.mark.parametrize("state", [QueueState.BEHIND, QueueState.CLAIMED, QueueState.PAUSED, QueueState.WAITING])
def test_a_queue_row_that_hides_a_ready_turn_is_found_and_mended(state: int) -> None:
    item = world.add()
    world.rewrite(item.pk, state=state)
    assert world.claim() == []
    assert world.authority().astray(limit=100) == {"envelopes_astray": {item.pk}}
    assert world.authority().repair() == 1
    assert world.claim_one().job_id == item.job_id


def test_a_head_that_was_not_promoted_is_found_by_the_repair() -> None:
    item = world.add()
    Session.objects.filter(pk=item.session_id).update(head_seq=None)
    assert world.authority().repair() == 1
    assert world.claim_one().job_id == item.job_id
    world.check()


def test_a_turn_before_its_time_that_says_claimable_is_mended_too() -> None:
    item = world.add(run_at=store_now() + timedelta(hours=1))
    world.rewrite(item.pk, state=QueueState.CLAIMABLE)
    assert world.authority().repair() == 1
    world.check()


# -- manual retry ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("verb", [Verb.FAILED, Verb.CANCELLED, Verb.DEAD_LETTER])
def test_a_retry_takes_a_new_place_and_forgets_the_end_but_keeps_steps_and_checkpoint(verb: str) -> None:
    item = world.add(deadline=store_now() + timedelta(hours=1))
    lease = world.claim_item(item)
    StepResult.objects.create(work_item=item, name="fetch", epoch=1, result=1, created_at=store_now())
    WorkItem.objects.filter(pk=item.pk).update(checkpoint={"at": 3}, checkpoint_id="checkpoint-1")
    world.authority().transitions.cancel([item.pk], code="cancelled", reason="enough")
    world.end(lease, verb, code="agent_error", message="it broke")
    before = world.add()
    world.authority().transitions.retry(item.pk)
    item = world.fresh(item)
    assert (item.status, item.attempt, item.session_seq) == (states.READY, 0, 3)
    assert (item.deadline, item.cancel_requested_at, item.finished_at, item.cancel_code) == (None, None, None, "")
    assert world.events(item)[-1] == "reopened"
    world.check()
    lease = world.claim_one()
    assert lease.job_id == before.job_id
    world.end(lease)
    again = world.claim_one()
    assert (again.job_id, again.turn_number, again.checkpoint, again.attempt) == (item.job_id, 3, {"at": 3}, 1)
    assert StepResult.objects.filter(work_item=item).exists()
    world.check()


def test_a_retry_may_have_a_deadline_of_its_own() -> None:
    item = world.run(world.add(), Verb.FAILED, code="agent_error")
    world.authority().transitions.retry(item.pk, deadline_s=30)
    deadline = world.fresh(item).deadline
    assert deadline is not None
    assert store_now() < deadline <= store_now() + timedelta(seconds=30)
    row = world.row_of(item)
    assert row is not None
    assert row.deadline == deadline.timestamp()


@pytest.mark.parametrize("status", [states.SUBMITTED, states.READY, states.RUNNING, states.SUSPENDED, states.SUCCEEDED])
def test_what_has_not_failed_is_not_retried(status: str) -> None:
    item = world.add(dependencies=[world.add("parent").job_id] if status == states.SUBMITTED else [])
    if status == states.RUNNING:
        world.claim_item(item)
    elif status == states.SUSPENDED:
        world.run(item, Verb.SUSPEND, code="input", question="which?")
    elif status == states.SUCCEEDED:
        world.run(item)
    before = WorkItem.objects.filter(pk=item.pk).values().get()
    assert before["status"] == status
    with pytest.raises(NotRetryable):
        world.authority().transitions.retry(item.pk)
    assert WorkItem.objects.filter(pk=item.pk).values().get() == before
    world.check()


def test_a_retry_waits_for_a_parent_that_is_not_finished_and_is_refused_after_one_that_failed() -> None:
    parent = world.add("parent")
    item = world.add(dependencies=[parent.job_id])
    world.authority().transitions.cancel([item.pk], code="cancelled")
    world.authority().transitions.retry(item.pk)
    assert world.fresh(item).status == states.SUBMITTED
    world.check()
    world.authority().transitions.cancel([item.pk], code="cancelled")
    world.run(parent, Verb.FAILED, code="agent_error")
    with pytest.raises(NotRetryable):
        world.authority().transitions.retry(item.pk)
    world.authority().transitions.retry(parent.pk)
    world.run(parent)
    world.authority().transitions.retry(item.pk)
    assert world.fresh(item).status == states.READY
    world.check()


def test_a_retry_counts_against_the_bound_and_resuming_a_suspended_turn_does_not() -> None:
    failed = world.run(world.add("a"), Verb.FAILED, code="agent_error")
    asking = world.run(world.add("b"), Verb.SUSPEND, code="input", question="which?")
    world.add("c")
    full = world.authority(max_depth=1)
    with pytest.raises(QueueFull):
        full.transitions.retry(failed.pk)
    assert world.fresh(failed).status == states.FAILED
    full.transitions.reply(Question.objects.get().pk, answer="this", by="me")
    assert world.fresh(asking).status == states.READY
    world.check()


def test_counters_say_how_turns_ended() -> None:
    world.run(world.add("a"))
    world.run(world.add("b"), Verb.FAILED, code="agent_error")
    world.run(world.add("c"), Verb.DEAD_LETTER, code="agent_error")
    world.authority().transitions.cancel([world.add("d").pk], code="cancelled")
    world.pass_deadline(world.add("e"))
    world.authority().transitions.expire()
    assert world.counted() == {"completed": 1, "failed": 2, "cancelled": 1, "expired": 1}


def test_a_turn_sees_what_the_turn_before_it_committed_and_nothing_of_a_run_that_did_not_succeed() -> None:
    for _ in range(4):
        world.add()
    first = world.claim_one()
    assert first.state == {}
    world.end(first, state={"n": 1})
    second = world.claim_one()
    assert second.state == {"n": 1}
    world.end(second, Verb.RETRY, state={"n": 99}, code="agent_error")
    second = world.claim_one()
    assert second.state == {"n": 1}
    world.end(second, Verb.FAILED, state={"n": 99}, code="agent_error")
    third = world.claim_one()
    assert third.state == {"n": 1}
    world.end(third, state=None)
    assert world.claim_one().state == {"n": 1}
