"""Retention beside a retry, a dispatch, another leader: each job is looked at again under its lock."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from dispatch.authority.removal import Removed
from dispatch.clock import store_now
from dispatch.errors import Invalid, NotRetryable
from dispatch.maintenance.aged import AgedTable
from dispatch.maintenance.pruner import Pruner, prune
from dispatch.models import WorkItem, WorkItemDependency
from dispatch.states import Verb
from sessions_app.models import AuditEntry, Session
from tests.dispatch.authority import world
from tests.dispatch.maintenance.aging import MONTH, WEEK, age, ended, policy, there

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


def remove(item: WorkItem, epoch: int, allowed: Callable[[], bool] = lambda: True) -> Removed:
    return world.authority().removal.jobs({item.pk: epoch}, keep_turns=0, allowed=allowed)


def test_a_job_that_was_retried_since_it_was_judged_stays() -> None:
    item = ended(verb=Verb.FAILED)
    world.authority().transitions.retry(item.pk)
    assert not remove(item, item.epoch)
    again = world.run(world.fresh(item), Verb.FAILED)
    assert not remove(item, item.epoch), "it has ended once more, in another epoch"
    assert remove(again, again.epoch)["work_items"] == 1


def test_a_retry_of_what_went_a_moment_ago_is_refused() -> None:
    item = ended(verb=Verb.FAILED)
    remove(item, item.epoch)
    with pytest.raises(NotRetryable):
        world.authority().transitions.retry(item.pk)


def test_a_retry_under_way_is_not_waited_for_and_wins() -> None:
    item = ended(verb=Verb.FAILED)
    holding, go_on = threading.Event(), threading.Event()

    def retry() -> None:
        with transaction.atomic():
            world.authority().transitions.retry(item.pk)
            holding.set()
            go_on.wait(30)
        connection.close()

    if connection.vendor != "postgresql":
        pytest.skip("on SQLite one writer waits for the other")
    thread = threading.Thread(target=retry)
    thread.start()
    try:
        assert holding.wait(30)
        assert not remove(item, item.epoch)
    finally:
        go_on.set()
        thread.join(30)
    assert not remove(item, item.epoch)
    world.check()


def test_a_parent_goes_before_or_after_its_dependents_dispatch_never_within() -> None:
    """Both at once, many times: the dependent is refused, or its parent stays."""
    ends: Counter[str] = Counter()
    for number in range(20):
        parent = ended(f"p{number}", Verb.SUCCEEDED if number % 2 else Verb.FAILED)
        slow = world.add(f"slow{number}")
        both = threading.Barrier(2, timeout=30)
        said: list[str] = []

        def dispatch(parent: WorkItem = parent, slow: WorkItem = slow, both: Any = both, said: Any = said) -> None:
            both.wait()
            try:
                world.add(f"c{parent.pk}", dependencies=[parent.job_id, slow.job_id])
                said.append("admitted")
            except Invalid:
                said.append("refused")
            connection.close()

        thread = threading.Thread(target=dispatch)
        thread.start()
        both.wait()
        removed = remove(parent, parent.epoch)
        thread.join(30)
        ends[said[0]] += 1
        assert (said[0] == "refused") == bool(removed["work_items"])
        if said[0] == "admitted":
            child = WorkItem.objects.get(session__session_id=f"c{parent.pk}")
            assert WorkItemDependency.objects.filter(work_item=child, parent=parent).exists()
        else:
            assert not Session.objects.filter(session_id=f"c{parent.pk}").exists(), "it left no row"
    assert ends.total() == 20


def test_nothing_goes_when_the_term_is_over() -> None:
    item = ended()
    age(item)
    asked: list[bool] = []

    def over() -> bool:
        asked.append(connection.in_atomic_block)
        return False

    AuditEntry.objects.create(at=store_now() - MONTH, tenant="t1", verb="kill")
    table = AgedTable(model=AuditEntry, at="at", age=WEEK)
    pruner = Pruner(world.authority(), policy=policy(), tables=(table,), allowed=over)
    assert not prune(pruner)
    assert asked
    assert all(asked), "it is asked inside the transaction"
    assert there(item) == [True]
    assert AuditEntry.objects.exists()


def test_a_queue_row_that_outlived_its_job_goes_with_it() -> None:
    item = world.add()
    row = world.row_of(item)
    assert row is not None
    item = world.run(item)
    with world.transport().transaction():
        world.transport().publish([row])
    remove(item, item.epoch)
    assert world.row_of(item) is None
