"""Jobs that wait for others."""

from __future__ import annotations

import itertools
import uuid

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet, new_session
from tests.support.processes import Proc

pytestmark = [pytest.mark.process, pytest.mark.store, pytest.mark.usefixtures("standing_worker")]


def test_a_dependent_waits_and_runs_once_right_after_its_parent(fleet: Fleet, api: Api) -> None:
    parent = api.dispatch("wait", s=2)
    child = api.dispatch("note", dependencies=[parent])
    why = api.explain(child)
    assert (why["reason"], why["blocked_by"], why["runnable"]) == ("waiting_dependency", parent, False)
    api.finish([parent, child], 15)
    (first,), (then,) = fleet.journal.runs(parent), fleet.journal.runs(child)
    assert 0 < then.begin - (first.end or 0) < 1.5


@pytest.mark.parametrize("end", ["boom", "cancelled", "failed before"])
def test_a_whole_chain_is_cancelled_with_its_reason_when_the_first_job_does_not_succeed(
    fleet: Fleet, api: Api, end: str
) -> None:
    first = api.dispatch("wait", s=60) if end == "cancelled" else api.dispatch("boom", max_attempts=1)
    if end == "failed before":
        api.finish([first], 15)
    chain = [first]
    for _ in range(3):
        chain.append(api.dispatch("note", dependencies=chain[-1:]))
    if end == "cancelled":
        fleet.until_begun(first)
        api.ok("cancel", job_id=first)
    jobs = api.finish(chain, 10)
    for parent, job in itertools.pairwise(chain):
        assert jobs[job]["status"] == "cancelled"
        error = jobs[job]["error"]
        assert error["code"] == "dependency"
        assert error["message"] == f"dependency {parent} ended as {jobs[parent]['status']}"
    assert not fleet.journal.runs(*chain[1:])


def test_unknown_parents_and_a_jobs_own_id_are_refused_and_leave_no_row(api: Api, fleet: Fleet) -> None:
    before = len(api.jobs())
    unknown = api.call("dispatch", task="x", agent_name="note", dependencies=[f"orch-{uuid.uuid4().hex}"])
    assert (unknown.status, unknown.json()["code"]) == (400, "invalid")
    assert "dependencies" in unknown.json()["fields"]
    key = uuid.uuid4().hex
    own = api.ok("dispatch", task="x", agent_name="note", idempotency_key=key)["job_id"]
    itself = api.call("dispatch", task="x", agent_name="note", idempotency_key=key, dependencies=[own])
    assert itself.status in (400, 409)
    assert len(api.jobs()) == before + 1


def test_turns_of_a_session_wait_behind_one_that_waits_for_its_parent(
    fleet: Fleet, api: Api, standing_worker: Proc
) -> None:
    session = new_session()
    parent = api.dispatch("wait", s=1)
    first, second = api.dispatch("note", session, dependencies=[parent]), api.dispatch("note", session)
    assert api.explain(second)["blocked_by"] == first
    api.finish([parent, first, second], 15)
    assert [run.job for run in fleet.journal.runs(parent, first, second)] == [parent, first, second]
    assert {run.pid for run in fleet.journal.runs(first)} == {standing_worker.pid}
