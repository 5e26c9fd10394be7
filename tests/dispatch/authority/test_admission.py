"""How a job comes in: its place, the bound, repeated keys, a busy session, a caller's own transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from dispatch import states
from dispatch.authority.submit import NewItem, Submitted
from dispatch.clock import store_now
from dispatch.errors import Invalid, QueueFull, SessionBusy
from dispatch.models import WorkItem, WorkItemEvent
from dispatch.states import QueueState, Verb
from sessions_app.models import Session
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


def submit(*items: NewItem, max_depth: int | None = None) -> list[Submitted]:
    return world.authority(max_depth).submit(items)


def nothing_is_left() -> bool:
    counts = [model.objects.count() for model in (WorkItem, Session, WorkItemEvent)]
    return counts == [0, 0, 0] and world.transport().depth() == 0 and not world.queue_rows()


# -- places ------------------------------------------------------------------------------------------------------------
def test_turns_take_their_places_in_the_order_of_their_admission() -> None:
    items = [world.add("a"), world.add("b"), world.add("a"), world.add("a", tenant="t2")]
    assert [item.session_seq for item in items] == [1, 1, 2, 1]
    assert len({item.session_id for item in items}) == 3
    world.check()


def test_a_list_keeps_its_order_inside_each_session() -> None:
    items = [world.new("ba"[n % 2], task=str(n)) for n in range(10)]
    answers = submit(*items)
    assert [answer.job_id for answer in answers] == [item.job_id for item in items]
    for session in "ab":
        tasks = WorkItem.objects.filter(session__session_id=session).values_list("task", flat=True)
        assert list(tasks.order_by("session_seq")) == sorted(tasks)
    world.check()


def test_a_turn_with_a_later_time_waits_for_it_and_later_turns_wait_behind_it() -> None:
    item = world.add(run_at=store_now() + timedelta(hours=1))
    world.add()
    row = world.row_of(item)
    assert row is not None
    assert row.state == QueueState.DUE_LATER
    assert world.claim(want=5) == []
    world.come_due(item)
    world.authority().transitions.due()
    assert world.claim_one().job_id == item.job_id
    world.check()


# -- repeated keys -----------------------------------------------------------------------------------------------------
def test_the_same_key_finds_the_same_job_whatever_has_become_of_it() -> None:
    item = world.new(fingerprint={"task": "x"})
    (first,) = submit(item)
    assert not first.existing
    for verb in (None, Verb.FAILED):
        if verb:
            world.run(WorkItem.objects.get(), verb, code="agent_error")
        (again,) = submit(replace(item, fingerprint={"task": "y"}))
        assert (again.existing, again.item_id, again.session_id) == (True, first.item_id, "s")
        assert again.fingerprint == {"task": "x"}
    assert WorkItem.objects.count() == 1
    world.check()


def test_one_key_twice_in_a_list_is_one_job() -> None:
    item = world.new(fingerprint={"task": "x"})
    first, second = submit(item, item)
    assert (first.existing, second.existing, second.job_id) == (False, True, first.job_id)
    assert WorkItem.objects.count() == 1


def test_racing_repeats_of_a_key_make_one_job() -> None:
    tries = 20
    for number in range(5):
        item = world.new(f"s{number}", fingerprint={"task": "x"})
        answers = _at_once([partial(_existed, item)] * tries)
        assert sorted(answers) == [False] + [True] * (tries - 1)
        assert WorkItem.objects.filter(job_id=item.job_id).count() == 1
    world.check()


def _existed(item: NewItem) -> bool:
    return submit(item)[0].existing


def _at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Run calls in threads that begin together; their answers, in no order."""
    start = threading.Barrier(len(calls))
    answers: list[Any] = []

    def run(call: Callable[[], Any]) -> None:
        try:
            start.wait(20)
            answers.append(call())
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == len(calls)
    return answers


# -- the bound ---------------------------------------------------------------------------------------------------------
def test_a_full_queue_refuses_and_leaves_no_row() -> None:
    submit(world.new("a"), world.new("b"))
    before = Session.objects.count(), WorkItem.objects.count(), WorkItemEvent.objects.count()
    with pytest.raises(QueueFull):
        submit(world.new("c"), max_depth=2)
    assert (Session.objects.count(), WorkItem.objects.count(), WorkItemEvent.objects.count()) == before
    world.check()


def test_a_list_is_admitted_as_far_as_there_is_room_and_each_item_says_so() -> None:
    answers = submit(*[world.new(f"s{n}") for n in range(5)], max_depth=3)
    assert [type(answer.error) for answer in answers] == [type(None)] * 3 + [QueueFull] * 2
    assert WorkItem.objects.count() == Session.objects.count() == world.transport().depth() == 3
    world.check()


def test_the_bound_holds_while_producers_race() -> None:
    bound, producers = 25, 8
    answers = _at_once([partial(_produce, f"s{p}", bound) for p in range(producers)])
    admitted = [admitted for each in answers for admitted in each]
    assert len(admitted) == producers * 6
    assert sum(admitted) == world.transport().depth() == WorkItem.objects.count() == bound
    world.check()


def _produce(session: str, bound: int) -> list[bool]:
    return [_admitted(f"{session}-{n}", bound) for n in range(6)]


def _admitted(session: str, bound: int) -> bool:
    try:
        submit(world.new(session), max_depth=bound)
    except QueueFull:
        return False
    return True


def test_suspended_turns_are_not_counted_and_ended_ones_make_room() -> None:
    for number in range(3):
        world.run(world.add(f"s{number}"), Verb.SUSPEND, code="input", question="which?")
    submit(world.new("a"), max_depth=1)
    with pytest.raises(QueueFull):
        submit(world.new("b"), max_depth=1)
    world.run(WorkItem.objects.get(session__session_id="a"))
    submit(world.new("b"), max_depth=1)
    world.check()


# -- a busy session ----------------------------------------------------------------------------------------------------
def test_reject_refuses_while_the_session_has_unfinished_turns() -> None:
    item = world.add()
    with pytest.raises(SessionBusy):
        submit(world.new(on_busy="reject"))
    world.run(item)
    submit(world.new(on_busy="reject"))
    assert WorkItem.objects.count() == 2
    world.check()


def test_interrupt_stops_the_running_turn_and_takes_the_next_place() -> None:
    running, queued = world.add(), world.add()
    lease = world.claim_item(running)
    submit(world.new(on_busy="interrupt"))
    assert world.fresh(running).cancel_requested_at is not None
    assert world.fresh(queued).status == states.READY
    world.end(lease, Verb.RETRY, code="agent_error")
    assert world.fresh(running).status == states.CANCELLED
    assert world.claim_one().job_id == queued.job_id
    world.check()


def test_an_interrupt_that_finds_no_room_stops_nobody() -> None:
    lease = world.claim_item(world.add())
    answers = submit(world.new(on_busy="interrupt"), world.new("b"), max_depth=1)
    assert [type(answer.error) for answer in answers] == [QueueFull, QueueFull]
    assert world.authority().cancels(leases=[lease.fence]).cancelled == {}


def test_interrupt_of_a_session_that_runs_nothing_takes_the_next_place() -> None:
    queued = world.add()
    submit(world.new(on_busy="interrupt"))
    assert world.fresh(queued).cancel_requested_at is None
    assert WorkItem.objects.count() == 2


def test_coalesce_replaces_what_the_newest_unstarted_turn_of_the_same_agent_is_to_do() -> None:
    running, oldest, newest = (world.add(task=f"old {n}") for n in range(3))
    other = world.add(task="old 3", agent_name="other")
    world.claim_item(running)
    (answer,) = submit(world.new(task="new", payload={"n": 1}, on_busy="coalesce"), max_depth=1)
    assert (answer.coalesced, answer.job_id) == (True, newest.job_id)
    newest = world.fresh(newest)
    assert (newest.task, newest.payload, newest.session_seq) == ("new", {"n": 1}, 3)
    assert [world.fresh(item).task for item in (running, oldest, other)] == ["old 0", "old 1", "old 3"]
    assert WorkItem.objects.count() == 4
    world.check()


@pytest.mark.parametrize("started", ["running", "handed back", "suspended"])
def test_coalesce_leaves_a_turn_alone_that_has_started(started: str) -> None:
    item = world.add(task="old")
    lease = world.claim_item(item)
    if started == "handed back":
        world.end(lease, Verb.HANDBACK)
    elif started == "suspended":
        world.end(lease, Verb.SUSPEND, code="input", question="which?")
    (answer,) = submit(world.new(task="new", on_busy="coalesce"))
    assert not answer.coalesced
    assert world.fresh(item).task == "old"
    assert WorkItem.objects.count() == 2
    world.check()


@pytest.mark.parametrize("since", ["waits", "runs", "ended"])
def test_what_was_coalesced_with_a_key_is_found_by_it_and_not_coalesced_again(since: str) -> None:
    first, waiting = world.add(), world.add()
    keyed = world.new(task="new", fingerprint={"task": "1"}, on_busy="coalesce")
    (answer,) = submit(keyed)
    assert (answer.coalesced, answer.existing, answer.job_id) == (True, False, waiting.job_id)
    submit(world.new(task="newer", on_busy="coalesce"))
    if since != "waits":
        world.run(first)
        lease = world.claim_item(waiting)
        if since == "ended":
            world.end(lease)
    (again,) = submit(keyed)
    assert (again.coalesced, again.existing, again.job_id) == (False, True, waiting.job_id)
    assert (again.session_id, again.item_id, again.fingerprint) == ("s", waiting.pk, {"task": "1"})
    assert world.fresh(waiting).task == "newer", "a repeat changes nothing"
    assert WorkItem.objects.count() == 2
    world.check()


def test_a_key_that_stands_twice_in_a_list_is_coalesced_once() -> None:
    waiting = world.add()
    keyed = world.new(task="new", fingerprint={"task": "1"}, on_busy="coalesce")
    answers = submit(keyed, keyed)
    assert [(answer.coalesced, answer.existing) for answer in answers] == [(True, False), (False, True)]
    assert {answer.job_id for answer in answers} == {waiting.job_id}


@pytest.mark.parametrize("busy", [True, False])
def test_repeats_of_a_key_that_race_to_be_coalesced_are_one(busy: bool) -> None:
    if busy:
        world.add()
    keyed = world.new(task="new", fingerprint={"task": "1"}, on_busy="coalesce")
    answers = [answer for (answer,) in _at_once([partial(submit, keyed)] * 8)]
    assert len({answer.job_id for answer in answers}) == WorkItem.objects.count() == 1
    assert sum(not answer.existing for answer in answers) == 1
    world.check()


@pytest.mark.parametrize("on_busy", ["reject", "interrupt", "coalesce"])
def test_an_idle_or_new_session_is_not_busy(on_busy: str) -> None:
    for _ in range(2):
        (answer,) = submit(world.new(on_busy=on_busy))
        assert not answer.coalesced
        world.run(WorkItem.objects.get(job_id=answer.job_id))
    world.check()


# -- dependencies at the door ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("tenant", ["", "t2"])
def test_an_unknown_parent_and_another_tenants_are_refused_alike(tenant: str) -> None:
    job_id = world.add("theirs", tenant="t2").job_id if tenant else "orch-" + "0" * 32
    before = Session.objects.count(), WorkItem.objects.count(), world.transport().depth()
    with pytest.raises(Invalid) as refusal:
        submit(world.new(dependencies=[job_id]))
    assert refusal.value.fields == {"dependencies": f"no such job: {job_id}"}
    assert (Session.objects.count(), WorkItem.objects.count(), world.transport().depth()) == before


def test_one_bad_item_does_not_stop_the_others_of_a_list() -> None:
    bad = world.new("b", dependencies=["orch-" + "0" * 32])
    answers = submit(world.new("a"), bad, world.new("c"), world.new("a", on_busy="reject"))
    assert [type(answer.error) for answer in answers] == [type(None), Invalid, type(None), SessionBusy]
    assert WorkItem.objects.count() == Session.objects.count() == 2
    world.check()


# -- a caller's own transaction ----------------------------------------------------------------------------------------
def test_a_dispatch_in_a_transaction_that_rolls_back_leaves_nothing_in_state_and_queue() -> None:
    with world.undone():
        submit(world.new())
    assert nothing_is_left()
    world.check()


def test_a_dispatch_in_a_transaction_is_published_when_that_commits() -> None:
    with transaction.atomic():
        submit(world.new("a"), world.new("b"))
        assert _at_once([world.queue_rows]) == [{}], "nobody else sees it before the commit"
    assert world.transport().depth() == 2
    world.check()
    assert len(world.claim(want=5)) == 2


def test_the_first_dispatch_of_a_fresh_queue_may_be_in_a_transaction() -> None:
    world.forget()
    with transaction.atomic():
        submit(world.new())
    assert world.transport().depth() == 1
    assert len(world.claim(want=5)) == 1


def test_a_savepoint_that_rolls_back_takes_only_its_own_dispatch_with_it() -> None:
    with transaction.atomic():
        submit(world.new("a"))
        with world.undone():
            submit(world.new("b"))
    assert list(WorkItem.objects.values_list("session__session_id", flat=True)) == ["a"]
    world.check()


def test_a_cancel_and_a_step_in_a_transaction_that_rolls_back_leave_all_as_it_was() -> None:
    item, other = world.add("a"), world.add("b")
    with world.undone():
        world.authority().transitions.cancel([item.pk], code="cancelled")
    assert (world.fresh(item).status, world.fresh(other).status) == (states.READY, states.READY)
    world.check()
    with transaction.atomic():
        world.authority().transitions.cancel([item.pk], code="cancelled")
    assert world.fresh(item).status == states.CANCELLED
    world.check()
