"""What acts on many sessions or looks at many jobs does it in few statements, and says the same as one by one."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dispatch import states
from dispatch.authority.projection import ALL, _strays_in_pages, _strays_in_store
from dispatch.models import WorkItem, WorkItemDependency
from dispatch.states import Verb
from sessions_app.models import Session, Turn
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


def test_killing_many_sessions_takes_as_many_statements_as_killing_a_few() -> None:
    def kill(count: int, name: str) -> int:
        pks = [world.add(f"{name}{number}").session_id for number in range(count)]
        with CaptureQueriesContext(connection) as queries:
            answer = world.authority().transitions.kill(pks, by="me", reason="so")
        assert answer == dict.fromkeys(pks, "applied")
        return len(queries)

    kill(1, "warm")
    assert kill(3, "few") == kill(60, "many")
    assert set(Session.objects.values_list("status", "desired", "head_seq")) == {("cancelled", "run", None)}
    world.check()


def test_a_kill_of_several_answers_for_each_what_happened_to_it() -> None:
    running, queued, retried, idle, paused = (world.add(name) for name in ("r", "q", "x", "i", "p"))
    lease = world.claim_item(running)
    world.end(world.claim_item(retried), Verb.RETRY, delay_s=60.0)
    world.add("x")
    world.run(idle)
    transitions = world.authority().transitions
    transitions.pause([paused.session_id], by="me", reason="")
    pks = [item.session_id for item in (running, queued, retried, idle, paused)]
    assert transitions.kill([*pks, 10**9], by="me", reason="so") == dict(
        zip(pks, ["requested", "applied", "applied", "already", "applied"], strict=True)
    )
    assert Session.objects.get(session_id="p").desired == "pause"
    assert Session.objects.get(session_id="x").turn_number == 1, "what had run keeps its number"
    world.end(lease, Verb.CANCELLED, code="cancelled")
    assert transitions.finish_kills() == 1
    assert not Session.objects.filter(kill_through_seq__isnull=False).exists()
    assert Turn.objects.count() == 3
    world.check()


def test_what_waits_in_vain_is_not_hidden_by_others_that_rightly_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dispatch.authority.transitions.WINDOW", 2)
    slow, parent = world.add("slow"), world.add("parent")
    world.run(slow)
    waiting = [world.add(f"w{n}", dependencies=[slow.job_id, parent.job_id]) for n in range(5)]
    last = world.add("last", dependencies=[slow.job_id, parent.job_id])
    WorkItemDependency.objects.filter(work_item=last, parent=parent).delete()
    transitions = world.authority().transitions
    assert transitions.release_waiting(limit=1) == 1
    assert world.fresh(last).status == states.READY
    assert {world.fresh(item).status for item in waiting} == {states.SUBMITTED}
    assert transitions.release_waiting(limit=1) == 0
    world.check()


def test_the_release_tick_does_not_look_at_what_ended() -> None:
    parent = world.add("parent")
    children = [world.add(f"c{n}", dependencies=[parent.job_id]) for n in range(3)]
    world.run(parent)
    for child in children:
        world.run(child)
    with CaptureQueriesContext(connection) as queries:
        assert world.authority().transitions.release_waiting() == 0
    assert len(queries) == 2, "what waits, and children that have not ended"


@pytest.mark.skipif(connection.vendor != "postgresql", reason="elsewhere the queue is not in the state store")
def test_the_database_finds_the_same_strays_as_a_look_at_each_row() -> None:
    world.add("head")
    for number, (status, desired, later) in enumerate(
        itertools.product(
            [states.READY, states.SUBMITTED, states.SUSPENDED, states.RUNNING], ["run", "pause"], [False, True]
        )
    ):
        first, behind = world.add(f"s{number}"), world.add(f"s{number}")
        live = status in states.LIVE
        WorkItem.objects.filter(pk=first.pk).update(
            status=status,
            owner="w" if live else None,
            due_at=first.created_at.replace(year=first.created_at.year + (1 if later else -1)),
        )
        Session.objects.filter(pk=first.session_id).update(desired=desired)
        if number % 3 == 0:
            Session.objects.filter(pk=first.session_id).update(head_seq=behind.session_seq if number % 2 else None)
    rows = list(world.queue_rows().values())
    for state in range(7):
        with world.transport().transaction():
            world.transport().publish([replace(row, state=state) for row in rows])
        assert _strays_in_store(ALL) == _strays_in_pages(world.transport(), None, 0.0)
    with world.transport().transaction():
        world.transport().ack([row.item_id for row in rows[::2]])
    WorkItem.objects.filter(pk=rows[1].item_id).delete()
    found, looked = _strays_in_store(ALL), _strays_in_pages(world.transport(), None, 0.0)
    # one that has no row is named once
    assert found == replace(looked, wrong_row=looked.wrong_row - looked.without_row)
    assert found.without_row
    assert found.wrong_row
    assert found.left_over
    assert len(_strays_in_store(1).without_row | _strays_in_store(1).wrong_row) <= 1
