"""A user's own tests: dispatch inside a transaction that is rolled back, and run what was dispatched there."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import transaction
from django.test import TestCase

from dispatch import selectors, services, testing, wiring
from dispatch.access import Caller
from dispatch.models import WorkItem
from dispatch.specs import DispatchSpec

CALLER = Caller(tenant="t1", name="a test", kind="system", scopes=frozenset({"read", "dispatch"}))


def dispatch(**body: object) -> str:
    spec = DispatchSpec.parse({"task": "do it", "agent_name": "echo", **body})
    return str(services.job_dispatch(caller=CALLER, spec=spec).handle["job_id"])


def status(job_id: str) -> str:
    return str(selectors.job_status(caller=CALLER, job_id=job_id)["status"])


class InATestCase(TestCase):
    def test_drain_runs_what_was_dispatched_in_order(self) -> None:
        turns = [dispatch(session_id="s-1") for _ in range(3)]
        child = dispatch(dependencies=turns[:1])
        assert testing.drain() == 4
        assert {status(job) for job in [*turns, child]} == {"succeeded"}
        results = [selectors.job_result(caller=CALLER, job_id=job)["result"] for job in turns]
        assert len({str(result) for result in results}) == 3
        assert testing.drain() == 0

    def test_the_worker_command_runs_it_too(self) -> None:
        jobs = [dispatch() for _ in range(3)]
        call_command("run_dispatch_worker", "--once")
        assert sorted(status(job) for job in jobs) == ["pending", "pending", "succeeded"]
        call_command("run_dispatch_worker", "--drain")
        assert {status(job) for job in jobs} == {"succeeded"}

    def test_nothing_of_the_test_before_is_left(self) -> None:
        assert WorkItem.objects.count() == 0
        assert testing.drain() == 0


class Undone(Exception):
    """Ends a transaction."""


@transaction.atomic
def dispatch_and_undo() -> None:
    dispatch()
    raise Undone


@pytest.mark.store
@pytest.mark.django_db(transaction=True)
def test_a_dispatch_whose_transaction_rolls_back_leaves_nothing_in_state_or_queue() -> None:
    kept = dispatch()
    depth = wiring.transport().depth()
    with pytest.raises(Undone):
        dispatch_and_undo()
    assert list(WorkItem.objects.values_list("job_id", flat=True)) == [kept]
    assert wiring.transport().depth() == depth
    with transaction.atomic():
        later = dispatch()
    assert wiring.transport().depth() == depth + 1
    assert testing.drain() == 2
    assert {status(kept), status(later)} == {"succeeded"}
    wiring.authority().repair()
    assert wiring.authority().astray(limit=100) == {}
