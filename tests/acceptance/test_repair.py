"""What a crash or a hand in the files has put out of step, the ticks put right, and health says so meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.support.api import Api
from tests.support.fleet import TICK_S, Fleet, new_session
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.store]


def impaired(fleet: Fleet) -> list[str]:
    evidence = fleet.topology()["evidence"]
    if evidence["status"] == "healthy":
        return []
    assert evidence["status"] == "degraded"
    assert not evidence["ready"]
    return list(evidence["dependencies"]["dispatch_queue"]["diagnostics"])


def test_a_ready_job_without_an_envelope_is_found_and_runs(fleet: Fleet, api: Api) -> None:
    job = api.dispatch("note")
    fleet.queue_sql("DELETE FROM agent_dispatch_queue WHERE job_id = ?", job)
    assert impaired(fleet) == ["items_without_envelope"]
    fleet.worker(1)
    assert api.finish([job], 2 * TICK_S + 3)[job]["status"] == "succeeded"
    until(lambda: not impaired(fleet), 5, "health is healthy again")


def test_an_envelope_without_a_job_is_removed(fleet: Fleet, api: Api) -> None:
    job = api.dispatch("note")
    fleet.launch(1, "--drain").wait(20)
    copy = (
        "INSERT INTO agent_dispatch_queue (work_item_id, job_id, tenant, kind, agent_name, state, rank, priority, "
        "enqueued_at) SELECT 999999, 'orch-nobody', 't1', 'orchestrator_task', 'note', 1, ?, 2, ?"
    )
    since: object = 0 if fleet.state_uri is None else datetime.fromtimestamp(0, UTC)
    fleet.queue_sql(copy, since, since)
    assert impaired(fleet) == ["envelopes_without_item"]
    fleet.worker(1)
    until(lambda: not impaired(fleet), 2 * TICK_S + 3, "the tick removes it")
    assert len(fleet.journal.runs(job)) == 1


def test_a_running_job_whose_lease_was_wiped_is_taken_back_and_its_old_run_writes_nothing(
    fleet: Fleet, api: Api
) -> None:
    fleet.worker(1, "--capacity", 2)
    session = new_session()
    job, after = api.dispatch("wait", session, s=8), api.dispatch("note", session)
    first = fleet.until_begun(job)
    wiped = fleet.state_sql("UPDATE work_items SET lease_expires_at = NULL WHERE job_id = ? RETURNING id", job)
    assert len(wiped) == 1
    second = fleet.until_begun(job, runs=2, within=2 * TICK_S + 3)
    done = api.finish([job, after], 25)[job]
    assert done["status"] == "succeeded"
    assert done["result"]["nonce"] == second.nonce != first.nonce
    until(lambda: fleet.journal.runs(job)[0].how == "told", 5, "the old run was told that it lost its lease")


def test_a_session_that_has_lost_its_head_goes_on(fleet: Fleet, api: Api) -> None:
    session = new_session()
    jobs = [api.dispatch("note", session) for _ in range(2)]
    fleet.state_sql("UPDATE sessions SET head_seq = NULL WHERE session_id = ?", session)
    fleet.worker(1)
    assert {job["status"] for job in api.finish(jobs, 7).values()} == {"succeeded"}
