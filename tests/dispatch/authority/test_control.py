"""Pause, resume, kill; and turns that are suspended: what nothing may start, and what lets it go on."""

from __future__ import annotations

import pytest

from dispatch import states
from dispatch.models import Question
from dispatch.states import Verb
from sessions_app.models import Session
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


# -- pause, resume, kill -----------------------------------------------------------------------------------------------
def test_a_pause_lets_the_running_turn_end_and_starts_nothing_new() -> None:
    first, second = world.add(), world.add()
    lease = world.claim_item(first)
    transitions = world.authority().transitions
    assert transitions.pause([first.session_id], by="me", reason="so") == {first.session_id: "requested"}
    session = world.session_of(first)
    assert (session.status, session.desired_by, session.desired_reason) == ("pause_requested", "me", "so")
    assert session.desired_at is not None
    assert session.stopped_at is None
    world.end(lease)
    session = world.session_of(first)
    assert session.status == "paused"
    assert session.stopped_at is not None
    third = world.add()
    for tick in (transitions.due, transitions.rescue, transitions.release_waiting, world.authority().repair):
        tick()
    assert world.claim(want=5) == []
    world.check()
    assert transitions.pause([first.session_id], by="me", reason="so") == {first.session_id: "already"}
    assert transitions.resume([first.session_id], by="me", reason="") == {first.session_id: "applied"}
    for turn in (second, third):
        lease = world.claim_one()
        assert lease.job_id == turn.job_id
        world.end(lease)
    world.check()


@pytest.mark.parametrize("way", ["rescue", "due", "reply", "dependency", "handback"])
def test_nothing_makes_a_turn_of_a_paused_session_claimable(way: str) -> None:
    parent = world.add("parent")
    item = world.add(dependencies=[parent.job_id] if way == "dependency" else [])
    lease = None if way == "dependency" else world.claim_item(item)
    if lease is not None and way == "due":
        world.end(lease, Verb.RETRY, delay_s=60.0, code="agent_error")
    if lease is not None and way == "reply":
        world.end(lease, Verb.SUSPEND, code="input", question="which?")
    world.authority().transitions.pause([item.session_id], by="me", reason="")
    if way == "rescue":
        world.rescue(*filter(None, [lease]))
    elif way == "due":
        world.come_due(item)
        world.authority().transitions.due()
    elif way == "reply":
        world.authority().transitions.reply(Question.objects.get().pk, answer="this", by="me")
    elif way == "dependency":
        world.run(parent)
    elif lease is not None:
        world.end(lease, Verb.HANDBACK)
    assert world.fresh(item).status == states.READY
    assert item.job_id not in [lease.job_id for lease in world.claim(want=5)]
    world.check()
    world.authority().transitions.resume([item.session_id], by="me", reason="")
    assert item.job_id in [lease.job_id for lease in world.claim(want=5)]


def test_a_kill_cancels_what_is_queued_and_running_and_later_turns_run() -> None:
    turns = [world.add() for _ in range(4)]
    lease = world.claim_item(turns[0])
    kill = world.authority().transitions.kill
    session = turns[0].session_id
    assert kill([session], by="me", reason="mad") == {session: "requested"}
    assert world.session_of(turns[0]).status == "kill_requested"
    assert [world.fresh(turn).status for turn in turns[1:]] == [states.CANCELLED] * 3
    later = world.add()
    assert world.claim(want=5) == []
    world.end(lease, Verb.CANCELLED, code="cancelled")
    world.check()
    assert world.claim_one().job_id == later.job_id
    world.authority().transitions.finish_kills()
    assert world.fresh(later).status == states.RUNNING
    world.check()


def test_asked_seen_and_stopped_are_different_facts_of_a_kill() -> None:
    item, at = world.add(), world.authority()
    lease = world.claim_item(item)
    at.transitions.kill([item.session_id], by="me", reason="mad")
    session = world.session_of(item)
    assert session.desired_at is not None
    assert (session.seen_at, session.seen_by, session.stopped_at) == (None,) * 3, "nobody has told the worker yet"
    assert at.cancels(leases=[lease.fence]).cancelled
    seen = world.session_of(item)
    assert seen.seen_at is not None
    assert seen.seen_at >= session.desired_at
    assert (seen.seen_by, seen.stopped_at) == (lease.owner, None)
    world.end(lease, Verb.CANCELLED, code="cancelled")
    ended = world.session_of(item)
    assert (ended.status, ended.seen_at) == ("cancelled", seen.seen_at)
    assert ended.stopped_at is not None
    assert ended.stopped_at >= seen.seen_at


def test_a_pause_is_seen_by_the_worker_while_its_turn_runs_on() -> None:
    item, at = world.add(), world.authority()
    lease = world.claim_item(item)
    at.transitions.pause([item.session_id], by="me", reason="so")
    assert not at.cancels(leases=[lease.fence]).cancelled
    seen = world.session_of(item)
    assert (seen.status, seen.seen_by, seen.stopped_at) == ("pause_requested", lease.owner, None)
    assert seen.seen_at is not None
    world.end(lease)
    paused = world.session_of(item)
    assert (paused.status, paused.seen_at, paused.seen_by) == ("paused", seen.seen_at, lease.owner)
    at.transitions.resume([item.session_id], by="me", reason="")
    assert world.session_of(item).seen_by is None


@pytest.mark.parametrize("verb", [Verb.SUCCEEDED, Verb.SUSPEND, Verb.RETRY])
def test_a_worker_that_did_not_look_sees_a_pause_at_the_end_of_its_run(verb: str) -> None:
    lease = world.claim_item(world.add())
    world.authority().transitions.pause([lease.session_pk], by="me", reason="so")
    world.end(lease, verb, **({"code": "input", "question": "which?"} if verb == Verb.SUSPEND else {}))
    session = Session.objects.get(pk=lease.session_pk)
    assert (session.status, session.seen_by) == ("paused", lease.owner)
    assert session.stopped_at is not None


@pytest.mark.parametrize("wish", ["pause", "kill"])
def test_a_session_whose_run_ignores_its_stop_has_stopped_when_that_run_really_ends(wish: str) -> None:
    item, at = world.add(), world.authority()
    lease = world.claim_item(item)
    getattr(at.transitions, wish)([item.session_id], by="me", reason="so")
    if wish == "pause":
        at.transitions.cancel([item.pk], code="cancelled")
    at.cancels(leases=[lease.fence])
    world.step([world.settlement(lease, Verb.CANCELLED, code="cancelled", ended=False)])
    session = world.session_of(item)
    assert (session.status, session.stopped_at) == ({"pause": "paused", "kill": "cancelled"}[wish], None)
    at.stopped(lease=lease)
    assert world.session_of(item).stopped_at is not None
    world.check()


def test_a_kill_of_an_idle_session_says_already() -> None:
    item = world.run(world.add())
    assert world.authority().transitions.kill([item.session_id], by="me", reason="") == {item.session_id: "already"}
    assert world.session_of(item).status == "idle"


def test_a_killed_session_that_ran_nothing_is_cancelled_at_once() -> None:
    item = world.add()
    assert world.authority().transitions.kill([item.session_id], by="me", reason="") == {item.session_id: "applied"}
    session = world.session_of(item)
    assert (session.status, session.desired, session.head_seq) == ("cancelled", "run", None)
    assert session.stopped_at is not None


def test_a_pause_outlives_a_kill() -> None:
    item = world.add()
    world.authority().transitions.pause([item.session_id], by="me", reason="")
    world.authority().transitions.kill([item.session_id], by="me", reason="")
    world.add()
    assert world.claim() == []
    assert world.session_of(item).status == "paused"
    world.check()


# -- suspended turns ---------------------------------------------------------------------------------------------------
def test_a_suspended_turn_holds_its_place_and_goes_on_as_the_same_turn_after_the_reply() -> None:
    item, following = world.add(), world.add()
    world.run(item, Verb.SUSPEND, code="input", question="which?", choices=["a", "b"])
    asked = Question.objects.get()
    assert (asked.question, asked.choices) == ("which?", ["a", "b"])
    assert world.fresh(item).owner is None
    assert world.transport().depth() == 1
    assert world.claim() == []
    world.authority().transitions.reply(asked.pk, answer="a", by="me")
    assert world.session_of(item).status == "active"
    lease = world.claim_one()
    assert (lease.job_id, lease.turn_number, lease.attempt, lease.resumed) == (item.job_id, 1, 1, True)
    world.end(lease)
    assert world.claim_one().job_id == following.job_id
    world.check()


def test_a_turn_that_waits_for_children_goes_on_when_the_last_has_ended_however_it_ended() -> None:
    parent = world.add("parent")
    children = [world.add(f"child-{n}", parent_item_id=parent.pk) for n in range(2)]
    world.run(parent, Verb.SUSPEND, code="children", wait_for=tuple(child.job_id for child in children))
    assert world.session_of(parent).status == "active"
    world.run(children[0])
    assert world.fresh(parent).status == states.SUSPENDED
    world.run(children[1], Verb.FAILED, code="agent_error")
    assert world.fresh(parent).status == states.READY
    world.check()


def test_a_turn_that_waits_for_children_that_have_ended_goes_on_at_once() -> None:
    parent = world.add("parent")
    child = world.run(world.add("child", parent_item_id=parent.pk))
    assert world.run(parent, Verb.SUSPEND, code="children", wait_for=(child.job_id,)).status == states.READY


def test_a_turn_may_wait_for_a_job_that_it_depended_on() -> None:
    first = world.run(world.add("first"))
    item = world.add(dependencies=[first.job_id])
    assert world.run(item, Verb.SUSPEND, code="children", wait_for=(first.job_id,)).status == states.READY


def test_children_are_cancelled_with_their_parent_and_theirs_with_them() -> None:
    parent = world.add("parent")
    waiting, running, over = (world.add(f"child-{n}", parent_item_id=parent.pk) for n in range(3))
    world.run(over)
    lease = world.claim_item(running)
    grandchild = world.add("grandchild", parent_item_id=waiting.pk)
    other = world.add("other")
    answer = world.authority().transitions.cancel([parent.pk], code="cancelled", reason="enough")
    assert answer == {parent.pk: "done"}
    ended = {item.pk: world.fresh(item).status for item in (parent, waiting, grandchild, over, other)}
    assert ended == {
        parent.pk: "cancelled", waiting.pk: "cancelled", grandchild.pk: "cancelled", over.pk: "succeeded",
        other.pk: "ready",
    }  # fmt: skip
    told = world.fresh(running)
    assert (told.status, told.cancel_reason) == ("running", "its parent was cancelled")
    world.end(lease, Verb.CANCELLED, code="cancelled")
    world.check()


def test_a_running_parents_children_are_cancelled_as_it_is_told_to_stop() -> None:
    parent = world.add("parent")
    world.claim_item(parent)
    child = world.add("child", parent_item_id=parent.pk)
    assert world.authority().transitions.cancel([parent.pk], code="cancelled") == {parent.pk: "requested"}
    assert world.fresh(child).status == "cancelled"


@pytest.mark.parametrize(
    ("verb", "code", "status"), [(Verb.CANCELLED, "expired", "cancelled"), (Verb.FAILED, "agent_error", "ready")]
)
def test_the_tick_cancels_children_that_came_late_and_those_of_a_failed_parent_go_on(
    verb: str, code: str, status: str
) -> None:
    parent = world.run(world.add("parent"), verb, code=code)
    child = world.add("child", parent_item_id=parent.pk)
    world.authority().transitions.release_waiting()
    assert world.fresh(child).status == status
    assert world.authority().transitions.release_waiting() == 0, "once is enough"
    world.check()


def test_a_killed_sessions_turn_takes_its_children_in_other_sessions_along() -> None:
    parent = world.add("parent")
    child = world.add("child", parent_item_id=parent.pk)
    world.authority().transitions.kill([parent.session_id], by="me", reason="so")
    assert [world.fresh(item).status for item in (parent, child)] == ["cancelled", "cancelled"]
    world.check()


def test_a_turn_that_waits_for_nobody_is_woken_by_the_tick() -> None:
    item = world.run(world.add(), Verb.SUSPEND, code="children", wait_for=())
    assert item.status == states.SUSPENDED
    assert world.authority().transitions.release_waiting() == 1
    assert world.fresh(item).status == states.READY
    world.check()
