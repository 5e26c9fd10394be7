"""A worker is killed: another one takes its turns when their leases end, and nobody has to help."""

from __future__ import annotations

import threading
import time

import pytest

from tests.support.api import Api
from tests.support.fleet import STALE_S, TICK_S, TTL_S, Fleet, new_session
from tests.support.journal import assert_sessions_in_order
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.store]
TAKEN_WITHIN_S = TTL_S + 2 * TICK_S + 1


def test_each_turn_of_a_killed_worker_goes_on_or_ends_as_its_job_says_and_nobody_has_to_help(
    fleet: Fleet, api: Api
) -> None:
    first = fleet.worker(3)
    goes_on, must_not, cancelled = new_session(), new_session(), new_session()
    turns = [api.dispatch("wait", goes_on, s=2), *(api.dispatch("note", goes_on) for _ in range(2))]
    once = [api.dispatch("wait", must_not, s=60, on_worker_lost="fail"), api.dispatch("note", must_not)]
    asked = [api.dispatch("wait", cancelled, s=60), *(api.dispatch("note", cancelled) for _ in range(2))]
    for job in (turns[0], once[0], asked[0]):
        assert fleet.until_begun(job).pid == first.pid
    rows = "CAST(active_sessions AS text) LIKE ?", f"%{goes_on}%"
    until(lambda: fleet.state_sql(f"SELECT id FROM dispatch_workers WHERE {rows[0]}", rows[1]), 5, "it shows its turn")
    first.kill()
    killed = time.monotonic()
    assert api.ok("cancel", job_id=asked[0])["cancel"] == "requested"
    # the registry is sight alone: a turn comes back without its worker's row too
    fleet.state_sql(f"DELETE FROM dispatch_workers WHERE {rows[0]}", rows[1])
    assert first.pid in fleet.live_pids()
    second = fleet.worker(3)
    run = fleet.until_begun(turns[0], runs=2, within=TAKEN_WITHIN_S)
    assert run.pid == second.pid
    assert run.begin - killed <= TAKEN_WITHIN_S
    jobs = api.finish([*turns, *once, *asked], 20)

    assert_sessions_in_order(fleet.journal, jobs.values())
    assert [jobs[job]["attempt"] for job in turns] == [2, 1, 1]
    events = jobs[turns[0]]["events"]
    assert [event["to"] for event in events] == ["ready", "running", "ready", "running", "succeeded"]
    assert "worker_lost" in events[2]["reason"]

    assert (jobs[once[0]]["status"], jobs[once[0]]["error"]["code"]) == ("failed", "worker_lost")
    assert jobs[once[1]]["status"] == "succeeded"

    assert [jobs[job]["status"] for job in asked] == ["cancelled", "succeeded", "succeeded"]
    assert [event["to"] for event in jobs[asked[0]]["events"]].count("cancelled") == 1
    assert len(fleet.journal.runs(once[0], asked[0])) == 2, "neither was run again"
    until(lambda: first.pid not in fleet.live_pids(), STALE_S + 4, "the killed worker is not live any more")


def test_a_turn_that_kills_its_worker_each_time_is_dead_lettered_and_others_run(fleet: Fleet, api: Api) -> None:
    bad = api.dispatch("die", max_attempts=2)
    over = threading.Event()

    def supervise() -> None:
        while not over.is_set():
            worker = fleet.launch(1)
            while worker.alive and not over.wait(0.05):
                pass

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    try:
        fleet.until_begun(bad)
        others = [api.dispatch("note") for _ in range(3)]
        job = api.finish([bad], 2 * (TAKEN_WITHIN_S + 5))[bad]
        assert {one["status"] for one in api.finish(others, 15).values()} == {"succeeded"}
    finally:
        over.set()
        supervisor.join()
    assert (job["status"], job["error"]["code"], job["attempt"]) == ("dead_letter", "worker_lost", 2)
    assert "worker lost" in job["error"]["message"]
    assert len(fleet.journal.runs(bad)) == 2
