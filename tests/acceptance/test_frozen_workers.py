"""A worker stands still for longer than its lease: others go on, and what it held can write nothing when it wakes."""

from __future__ import annotations

import pytest

from tests.support.api import Api
from tests.support.fleet import TTL_S, Fleet, new_session
from tests.support.journal import assert_sessions_in_order
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.store]
RESCUE = """
import time
from dispatch import wiring
end = time.monotonic() + 20
while not wiring.authority().transitions.rescue():
    assert time.monotonic() < end
    time.sleep(0.1)
"""
REFUSED = "lease is no longer held"


def test_the_result_of_who_took_over_stands_and_the_woken_worker_goes_on_with_other_turns(
    fleet: Fleet, api: Api
) -> None:
    first = fleet.worker(1)
    session = new_session()
    turns = [api.dispatch("deaf", session, s=2), *(api.dispatch("note", session) for _ in range(5))]
    fleet.until_begun(turns[0])
    fleet.freeze(first)
    second = fleet.worker(1)
    api.finish(turns[:1], TTL_S + 15)
    result = api.ok("result", job_id=turns[0])["result"]
    assert result["pid"] == second.pid
    fleet.thaw(first)
    first.wait_for_text(REFUSED, 10)
    jobs = api.finish(turns, 20)
    assert_sessions_in_order(fleet.journal, jobs.values(), frozen=[first.pid])
    assert jobs[turns[0]]["result"] == result
    assert [row["pid"] for row in fleet.journal.events(turns[0], "effect")] == [second.pid]
    assert fleet.epochs(turns[0]) == [1, 2]
    assert api.get(f"/api/sessions/{session}")["state"]["n"] == 6
    fleet.stop([second])
    probe = api.dispatch("note")
    assert api.finish([probe], 10)[probe]["result"]["pid"] == first.pid


def test_a_job_retried_while_its_old_worker_is_frozen_is_safe_from_it(fleet: Fleet, api: Api) -> None:
    first = fleet.worker(1)
    job = api.dispatch("deaf", s=2, max_attempts=1)
    fleet.until_begun(job)
    fleet.freeze(first)
    second = fleet.worker(1)
    dead = api.finish([job], TTL_S + 15)[job]
    assert (dead["status"], dead["error"]["code"]) == ("dead_letter", "worker_lost")
    assert api.call("retry", job_id=job).status == 202
    done = api.finish([job], 20)[job]
    fleet.thaw(first)
    first.wait_for_text(REFUSED, 10)
    assert (done["status"], done["result"]["pid"]) == ("succeeded", second.pid)
    assert api.ok("result", job_id=job)["result"] == done["result"]
    assert [row["pid"] for row in fleet.journal.events(job, "effect")] == [second.pid]


def test_the_epoch_grows_over_loss_hand_back_cancel_and_retry_and_old_holders_stay_out(fleet: Fleet, api: Api) -> None:
    lost = fleet.worker(1)
    job = api.dispatch("deaf", s=3)
    fleet.until_begun(job)
    fleet.freeze(lost)
    handing = fleet.worker(1)
    fleet.until_begun(job, runs=2, within=TTL_S + 10)
    fleet.hurry(handing)
    assert handing.wait(10) == 0
    assert api.ok("cancel", job_id=job)["cancel"] == "done"
    assert api.call("retry", job_id=job).status == 202
    last = fleet.worker(1)
    fleet.until_begun(job, runs=3)
    fleet.thaw(lost)
    lost.wait_for_text(REFUSED, 10)
    done = api.finish([job], 20)[job]
    assert (done["status"], done["attempt"], done["result"]["pid"]) == ("succeeded", 1, last.pid)
    epochs = fleet.epochs(job)
    assert epochs == sorted(set(epochs))
    assert len(epochs) == 3
    assert [row["pid"] for row in fleet.journal.events(job, "effect")] == [last.pid]
    query = "SELECT o.epoch, o.status FROM outcomes o JOIN work_items i ON i.id = o.work_item_id WHERE i.job_id = ?"
    outcomes = fleet.state_sql(query + " ORDER BY o.epoch", job)
    assert [status for _, status in outcomes] == ["cancelled", "succeeded"]


def test_a_consumer_that_claims_again_what_it_lost_is_another_holder_than_its_older_self(
    fleet: Fleet, api: Api
) -> None:
    worker = fleet.worker(1, "--capacity", 2, "--no-maintenance")
    job = api.dispatch("deaf", s=TTL_S + 4, payload={"then": 0.5})
    fleet.until_begun(job)
    fleet.freeze(worker)
    fleet.python(RESCUE)
    fleet.thaw(worker)
    again = fleet.until_begun(job, runs=2)
    assert again.pid == worker.pid
    done = api.finish([job], 10)[job]
    _, second = fleet.journal.runs(job)
    until(lambda: fleet.journal.runs(job)[0].lines[-1]["ev"] == "awake", 10, "the stalled run wakes")
    worker.wait_for_text(REFUSED, 5)
    assert done["result"]["nonce"] == second.nonce
    assert [row["nonce"] for row in fleet.journal.events(job, "effect")] == [second.nonce]
    assert api.ok("result", job_id=job)["result"] == done["result"]
    assert fleet.journal.runs(job)[0].how is None
    assert fleet.epochs(job) == [1, 2]


def test_no_output_of_an_old_holder_is_stored_after_the_new_claim(fleet: Fleet, api: Api) -> None:
    first = fleet.worker(1)
    job = api.dispatch("talk", s=TTL_S + 6)
    run = fleet.until_begun(job)
    query = "SELECT c.epoch FROM output_chunks c JOIN work_items i ON i.id = c.work_item_id WHERE i.job_id = ?"
    until(lambda: fleet.state_sql(query, job), 10, "output is stored")
    fleet.freeze(first)
    fleet.worker(1)
    fleet.until_begun(job, runs=2, within=TTL_S + 10)
    fleet.thaw(first)
    first.wait_for_text(REFUSED, 15)
    assert api.finish([job], 10)[job]["status"] == "succeeded"
    epochs = [epoch for (epoch,) in fleet.state_sql(query + " ORDER BY c.id", job)]
    assert set(epochs) == {1, 2}
    assert epochs == sorted(epochs), "a chunk of the first run came after one of the second"
    ((last,),) = fleet.state_sql(
        "SELECT max(c.at) FROM output_chunks c JOIN work_items i ON i.id = c.work_item_id "
        "WHERE i.job_id = ? AND c.epoch = 1",
        job,
    )
    ((taken,),) = fleet.state_sql(
        "SELECT min(e.at) FROM work_item_events e JOIN work_items i ON i.id = e.work_item_id "
        "WHERE i.job_id = ? AND e.epoch = 2 AND e.to_status = 'running'",
        job,
    )
    assert last <= taken
    assert run.pid == first.pid
