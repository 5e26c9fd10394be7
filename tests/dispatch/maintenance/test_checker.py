"""Each rule of the checker, broken by hand, is found, named and mended, and the command's exit code tells."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection

from dispatch import states
from dispatch.clock import store_now
from dispatch.errors import TaskQueueUnavailable
from dispatch.maintenance.checker import Checker
from dispatch.management.commands import check_dispatch
from dispatch.models import CheckFinding, DispatchWorker, WorkItem
from dispatch.states import QueueState, Verb
from sessions_app.models import Session
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]
TICK_S, STALE_S = 5.0, 90.0
LONG_AGO = timedelta(minutes=5)


def checker() -> Checker:
    return Checker(world.authority(), tick_s=TICK_S, stale_s=STALE_S)


def labels() -> list[str]:
    return [finding.label for finding in checker().findings()]


def command(*arguments: str) -> tuple[int, str]:
    """Exit code and output of check_dispatch."""
    out = io.StringIO()
    try:
        call_command("check_dispatch", *arguments, stdout=out, stderr=out)
    except SystemExit as stop:
        return int(str(stop.code)), out.getvalue()
    return 0, out.getvalue()


# -- ways to break it --------------------------------------------------------------------------------------------------
def lease_ended_long_ago() -> None:
    world.lapse(world.claim_item(world.add("s1")))
    WorkItem.objects.filter(status=states.RUNNING).update(lease_expires_at=store_now() - LONG_AGO)


def lease_without_an_end() -> None:
    world.claim_item(world.add("s1"))
    WorkItem.objects.filter(status=states.RUNNING).update(lease_expires_at=None)


def envelope_deleted() -> None:
    item = world.add("s1")
    with world.transport().transaction():
        world.transport().ack([item.pk])


def envelope_says_behind() -> None:
    world.rewrite(world.add("s1").pk, state=QueueState.BEHIND)


def envelope_of_an_ended_item() -> None:
    item = world.add("s1")
    row = world.row_of(item)
    world.run(item)
    assert row is not None
    with world.transport().transaction():
        world.transport().publish([row])


def head_forgotten() -> None:
    item = world.add("s1")
    world.add("s1")
    Session.objects.filter(pk=item.session_id).update(head_seq=item.session_seq + 1)


def head_of_a_finished_session() -> None:
    item = world.add("s1")
    world.run(item)
    Session.objects.filter(pk=item.session_id).update(head_seq=item.session_seq)


def _ended_unnoticed(item: WorkItem) -> None:
    """As a crash leaves it between the commit that ended the parent and the release of its dependents."""
    WorkItem.objects.filter(pk=item.pk).update(
        status=states.SUCCEEDED, finished_at=store_now() - LONG_AGO, owner=None, lease_expires_at=None
    )
    Session.objects.filter(pk=item.session_id).update(head_seq=None)
    with world.transport().transaction():
        world.transport().ack([item.pk])


def dependent_forgotten() -> None:
    parent = world.add("p")
    world.add("s1", dependencies=[parent.job_id])
    _ended_unnoticed(parent)


def waits_for_an_ended_child() -> None:
    child = world.add("c")
    lease = world.claim_item(world.add("s1"))
    world.end(lease, Verb.SUSPEND, code="children", wait_for=(child.job_id,))
    _ended_unnoticed(child)


BREACHES: dict[str, tuple[Callable[[], None], str]] = {
    "a lease that ended long ago": (lease_ended_long_ago, "leases_expired"),
    "a lease without an end": (lease_without_an_end, "leases_expired"),
    "an envelope that was deleted": (envelope_deleted, "items_without_envelope"),
    "an envelope that hides a ready turn": (envelope_says_behind, "envelopes_astray"),
    "an envelope of an ended item": (envelope_of_an_ended_item, "envelopes_without_item"),
    "a head that is not the first unfinished turn": (head_forgotten, "head_astray"),
    "a head where nothing is unfinished": (head_of_a_finished_session, "head_astray"),
    "a dependent whose parent has ended": (dependent_forgotten, "waiting_for_ended"),
    "a turn that waits for a child that has ended": (waits_for_an_ended_child, "waiting_for_ended"),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_broken_rule_is_found_then_mended_and_nothing_is_left(breach: str) -> None:
    break_it, label = BREACHES[breach]
    break_it()
    code, said = command()
    assert code == 1
    assert f"{label}: 1:" in said
    assert "repaired: " in command("--repair")[1]
    assert command() == (0, "no findings\n")


@pytest.mark.parametrize("breach", BREACHES)
def test_after_the_repair_the_turns_run_to_their_end(breach: str) -> None:
    BREACHES[breach][0]()
    checker().repair()
    while leases := world.claim():
        world.end(leases[0])
    assert not WorkItem.objects.filter(finished_at=None).exists()
    assert labels() == []


def test_what_a_check_found_is_noted_and_forgotten_once_it_is_mended() -> None:
    lease_ended_long_ago()
    world.add("s1")
    Session.objects.filter(session_id="s1").update(head_seq=2)
    assert checker().note() == 2
    noted = {row.label: row for row in CheckFinding.objects.all()}
    assert noted.keys() == {"head_astray", "leases_expired"}
    first = noted["leases_expired"]
    assert (first.count, first.references) == (1, [WorkItem.objects.get(status=states.RUNNING).job_id])
    Session.objects.filter(session_id="s1").update(head_seq=1)
    assert checker().note() == 1
    again = CheckFinding.objects.get()
    assert (again.label, again.first_seen) == ("leases_expired", first.first_seen)
    assert again.last_seen > first.last_seen
    checker().repair()
    assert checker().note() == 0
    assert not CheckFinding.objects.exists()


def test_a_store_in_order_has_no_findings_whatever_its_turns_do() -> None:
    world.claim_item(world.add("running"))
    world.add("running")
    world.end(world.claim_item(world.add("waits")), Verb.RETRY, delay_s=60)
    world.end(world.claim_item(world.add("asks")), Verb.SUSPEND, code="input", question="which?")
    world.add("child", dependencies=[world.add("parent").job_id])
    world.run(world.add("ended"))
    assert command() == (0, "no findings\n")
    assert command("--repair") == (0, "repaired: 0\nno findings\n")


def test_a_dependent_whose_parent_ended_a_moment_ago_is_no_finding() -> None:
    parent = world.add("p")
    world.add("s1", dependencies=[parent.job_id])
    _ended_unnoticed(parent)
    WorkItem.objects.filter(pk=parent.pk).update(finished_at=store_now())
    assert labels() == []


def test_a_worker_that_beats_while_its_leases_lapse_is_named_and_not_mended() -> None:
    world.claim_item(world.add("s1"), owner="token-1")
    now = store_now()
    DispatchWorker.objects.create(
        worker_id="host:1:agent-dispatch:0",
        token="token-1",
        host="host",
        pid=1,
        capacity=1,
        queue_backend="q",
        version="v",
        started_at=now,
        last_heartbeat=now,
    )
    WorkItem.objects.filter(status=states.RUNNING).update(lease_expires_at=now - LONG_AGO)
    code, said = command()
    assert code == 1
    assert "worker_stuck: 1 (not mended by --repair)" in said
    assert "host:1:agent-dispatch:0" in said


@contextmanager
def _without_the_index(name: str) -> Iterator[None]:
    """The database refuses two live leases; take its refusal away for a while."""
    model_constraint = next(one for one in WorkItem._meta.constraints if one.name == name)
    with connection.schema_editor() as editor:
        editor.remove_constraint(WorkItem, model_constraint)
    try:
        yield
    finally:
        world.wipe()
        with connection.schema_editor() as editor:
            editor.add_constraint(WorkItem, model_constraint)


@pytest.mark.django_db(transaction=True)
def test_two_live_leases_of_a_session_are_named_and_left_to_a_person() -> None:
    with _without_the_index("work_items_one_live"):
        first, second = world.add("s1"), world.add("s1")
        world.claim_item(first)
        WorkItem.objects.filter(pk=second.pk).update(
            status=states.RUNNING, owner="w2", epoch=1, lease_expires_at=store_now() + LONG_AGO
        )
        code, said = command("--repair")
        assert code == 1
        assert "two_live_leases: 1 (not mended by --repair)" in said


def test_what_is_wrong_before_any_check_is_said_in_one_sentence_with_exit_2(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise TaskQueueUnavailable("STATE_DB_URI: no Postgres answered at nowhere:5432")

    monkeypatch.setattr(check_dispatch, "preflight", refuse)
    assert command() == (2, "STATE_DB_URI: no Postgres answered at nowhere:5432\n")
