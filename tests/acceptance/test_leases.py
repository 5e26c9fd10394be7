"""A running turn keeps its lease for as long as its worker renews it, and is seen meanwhile."""

from __future__ import annotations

import time

import pytest

from tests.support.api import TERMINAL, Api
from tests.support.fleet import TTL_S, Fleet, new_session

pytestmark = [pytest.mark.process, pytest.mark.store]
TICKS = """
from dispatch import wiring
authority = wiring.authority()
for _ in range(20):
    authority.transitions.rescue(), authority.transitions.release_waiting(), authority.transitions.due()
    authority.repair()
"""


def shown_by(fleet: Fleet) -> dict[int, list[str]]:
    """The sessions that each live worker is said to run, by its process id."""
    return {int(row["worker_id"].split(":")[1]): row["active_sessions"] for row in fleet.topology()["dispatch_workers"]}


def test_a_turn_longer_than_its_lease_starts_once_and_is_shown_at_every_look(fleet: Fleet, api: Api) -> None:
    workers = {fleet.worker(1).pid, fleet.worker(1).pid}
    session = new_session()
    job = api.dispatch("deaf", session, s=TTL_S + 4)
    run = fleet.until_begun(job)
    looks, last = 0, run.begin
    while api.status(job) not in TERMINAL:
        live = shown_by(fleet)
        if api.status(job) in TERMINAL:
            break
        assert live.keys() >= workers, "the busy one stays live too"
        assert [pid for pid, sessions in live.items() if session in sessions] == [run.pid], "from the first look on"
        looks, last = looks + 1, time.monotonic()
        assert looks < 200
        time.sleep(0.2)
    assert last > run.begin + TTL_S, "it was seen after the time for which it was first leased"
    assert api.job(job)["attempt"] == 1
    assert [one.pid for one in fleet.journal.runs(job)] == [run.pid]
    assert fleet.epochs(job) == [1]


def test_ticks_run_by_hand_change_nothing_beside_a_turn_that_renews(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    session = new_session()
    first, second = api.dispatch("deaf", session, s=10), api.dispatch("note", session)
    fleet.until_begun(first)
    before = fleet.platform().job(first)["events"]
    fleet.python(TICKS)
    assert fleet.platform().job(first)["events"] == before
    assert api.status(second) == "pending"
    jobs = api.finish([first, second], 30)
    assert [job["attempt"] for job in jobs.values()] == [1, 1]
    assert len(fleet.journal.runs(first, second)) == 2


def test_workers_with_different_leases_do_not_judge_each_others_by_their_own(fleet: Fleet, api: Api) -> None:
    long = {"AGENT_DISPATCH_CLAIM_TTL_S": 60, "AGENT_DISPATCH_RENEW_INTERVAL_S": 20}
    slow = fleet.worker(1, env=long)
    kept = api.dispatch("deaf", s=TTL_S + 3)
    fleet.until_begun(kept)
    quick = fleet.worker(1)
    lost = api.dispatch("wait", s=60)
    assert fleet.until_begun(lost).pid == quick.pid
    quick.kill()
    killed = time.monotonic()
    api.finish([kept], 30)
    assert [run.pid for run in fleet.journal.runs(kept)] == [slow.pid]
    taken = fleet.until_begun(lost, runs=2, within=TTL_S + 10)
    assert taken.begin - killed <= TTL_S + 4, "the dead worker's lease was its own short one"


def test_a_duplicate_envelope_for_a_running_turn_is_harmless(fleet: Fleet, api: Api) -> None:
    first = fleet.worker(1)
    session = new_session()
    job, after = api.dispatch("wait", session, s=8), api.dispatch("note", session)
    assert fleet.until_begun(job).pid == first.pid
    fleet.queue_sql("UPDATE agent_dispatch_queue SET state = 1 WHERE job_id = ?", job)
    second = fleet.worker(1)
    probe = api.dispatch("note")
    api.finish([probe], 10)
    assert len(fleet.journal.runs(job)) == 1
    assert api.status(after) == "pending"
    first.kill()
    assert fleet.until_begun(job, runs=2, within=TTL_S + 10).pid == second.pid
    api.finish([job, after], 20)
    assert fleet.epochs(job) == [1, 2]
    assert len(fleet.journal.events(job, "end")) == 1


def test_more_turns_than_connections_all_run_and_renew_while_the_api_answers(fleet: Fleet, api: Api) -> None:
    fleet.worker(12)
    jobs = [api.dispatch("deaf", s=TTL_S + 2) for _ in range(12)]
    for job in jobs:
        fleet.until_begun(job)
    asked = time.monotonic()
    api.job(jobs[0])
    assert time.monotonic() - asked < 1
    assert {job["attempt"] for job in api.finish(jobs, 30).values()} == {1}
    assert len(fleet.journal.runs(*jobs)) == 12
