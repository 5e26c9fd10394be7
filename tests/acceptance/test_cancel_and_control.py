"""Cancel, deadline, pause and kill tell the truth: requested, seen and stopped are different facts."""

from __future__ import annotations

import time

import pytest

from tests.support.api import Api
from tests.support.fleet import STALE_S, Fleet, new_session
from tests.support.journal import assert_sessions_in_order
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.store]


def test_a_running_turn_is_told_within_two_seconds_and_its_slot_is_free_again(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    session = new_session()
    job, after = api.dispatch("wait", session, s=60), api.dispatch("note", session)
    fleet.until_begun(job)
    asked = time.monotonic()
    assert api.ok("cancel", job_id=job, reason="enough")["cancel"] == "requested"
    api.until(job, "cancelled", within=5)
    (told,) = fleet.journal.events(job, "told")
    assert told["t"] - asked <= 2.2
    shown = api.job(job)
    assert shown["error"] == {"code": "cancelled", "message": "enough"}
    times = [shown[name] for name in ("started_at", "cancel_requested_at", "cancel_seen_at", "finished_at")]
    assert times == sorted(times)
    assert shown["stopped_at"] is not None
    api.until(after, "succeeded", within=5)
    assert api.ok("cancel", job_id=job)["cancel"] == "too_late"
    assert len(fleet.journal.runs(job)) == 1


def test_a_function_that_ignores_its_cancel_is_settled_without_it_and_shown_as_stuck(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(1)
    session = new_session()
    job, after = api.dispatch("deaf_1s", session, s=6), api.dispatch("note", session)
    fleet.until_begun(job)
    assert api.ok("cancel", job_id=job)["cancel"] == "requested"
    api.until(job, "cancelled", within=8)
    shown = api.job(job)
    assert shown["stopped_at"] is None, "it has not really ended"
    assert shown["finished_at"] is not None

    def stuck() -> bool:
        rows = fleet.state_sql("SELECT stuck, active_sessions FROM dispatch_workers WHERE pid = ?", worker.pid)
        return rows[0][0] == 1 and job in str(rows[0][1])

    until(stuck, 3, "the registry shows the stuck run")
    assert any(session in row["active_sessions"] for row in fleet.topology()["dispatch_workers"])
    assert api.status(after) == "pending", "the only slot is still taken"
    until(lambda: api.job(job)["stopped_at"], 15, "it ends, and that is noted")
    assert api.finish([after], 10)[after]["status"] == "succeeded"
    assert not fleet.journal.events(job, "effect"), "its step was refused"
    assert api.status(job) == "cancelled"
    until(lambda: not stuck(), 3, "the registry does not show it any more")


def test_a_run_that_ends_right_at_its_cancel_ends_once(fleet: Fleet, api: Api) -> None:
    fleet.worker(4)
    session = new_session()
    jobs, answers = [], {}
    for _ in range(12):
        job = api.dispatch("wait", s=0.4)
        begun = fleet.until_begun(job)
        time.sleep(max(0.0, begun.begin + 0.36 - time.monotonic()))  # it is about to end
        answers[job] = api.ok("cancel", job_id=job)["cancel"]
        jobs.append(job)
    stayed = api.dispatch("stay", session, s=60)
    fleet.until_begun(stayed)
    api.ok("cancel", job_id=stayed)
    after = api.dispatch("note", session)
    for job, shown in api.finish([*jobs, stayed, after], 15).items():
        finals = [event["to"] for event in shown["events"] if event["to"] in ("succeeded", "cancelled")]
        assert finals == [shown["status"]]
        if answers.get(job) == "too_late":
            assert shown["status"] == "succeeded"
        assert (shown["result"] is not None) == (shown["status"] == "succeeded")
    assert api.job(stayed)["result"]["stayed"] is True, "a value that came in spite of the cancel is a value"
    assert api.status(after) == "succeeded"


def test_a_job_cancelled_while_nothing_runs_never_starts(fleet: Fleet, api: Api) -> None:
    session = new_session()
    turns = [api.dispatch("note", session) for _ in range(3)]
    assert api.ok("cancel", job_id=turns[1])["cancel"] == "done"
    fleet.kill_web()
    fleet.start_web()
    fleet.worker(2)
    jobs = api.finish(turns, 15)
    assert [job["status"] for job in jobs.values()] == ["succeeded", "cancelled", "succeeded"]
    assert not fleet.journal.runs(turns[1])


def test_a_running_turn_is_stopped_at_its_deadline_and_an_unstarted_one_never_starts(fleet: Fleet, api: Api) -> None:
    late = api.dispatch("note", deadline_s=1)
    until(lambda: api.explain(late)["reason"] == "expired", 5, "its deadline passes")
    fleet.worker(1)
    job = api.dispatch("wait", s=30, deadline_s=4)
    run = fleet.until_begun(job)
    jobs = api.finish([late, job], 15)
    assert [(one["status"], one["error"]["code"]) for one in jobs.values()] == [("cancelled", "expired")] * 2
    assert "deadline" in jobs[job]["error"]["message"]
    (told,) = fleet.journal.events(job, "told")
    assert 2.5 < told["t"] - run.begin < 5.5
    assert not fleet.journal.runs(late)


def test_a_pause_survives_restarts_and_resume_goes_on_in_order(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(1, "--grace", 10)
    session = new_session()
    turns = [api.dispatch("wait", session, s=2), *(api.dispatch("note", session) for _ in range(3))]
    fleet.until_begun(turns[0])
    assert api.control("pause", session) == {session: "requested"}
    assert api.get(f"/api/sessions/{session}")["status"] == "pause_requested"
    worker.signal(15)
    assert worker.wait(15) == 0
    assert api.get(f"/api/sessions/{session}")["status"] == "paused"
    fleet.kill_web()
    fleet.start_web()
    fleet.until_live(fleet.launch(2), fleet.launch(1))
    turns.append(api.dispatch("note", session))
    probes = [api.dispatch("note") for _ in range(6)]
    api.finish(probes, 10)
    assert api.control("pause", session) == {session: "already"}
    assert not fleet.journal.runs(*turns[1:])
    assert api.explain(turns[1])["reason"] == "session_paused"
    assert api.control("resume", session) == {session: "applied"}
    jobs = api.finish(turns, 15)
    assert_sessions_in_order(fleet.journal, jobs.values())
    assert [run.job for run in fleet.journal.runs(*turns)] == turns


def test_kill_ends_what_runs_and_what_waits_and_the_session_takes_new_turns(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    session = new_session()
    turns = [api.dispatch("wait", session, s=60) for _ in range(3)]
    fleet.until_begun(turns[0])
    asked = time.monotonic()
    assert api.control("kill", session) == {session: "requested"}
    jobs = api.finish(turns, 10)
    assert {(job["status"], job["error"]["code"]) for job in jobs.values()} == {("cancelled", "cancelled")}
    assert fleet.journal.events(turns[0], "told")[0]["t"] - asked < 3
    assert len(fleet.journal.runs(*turns)) == 1
    new = api.dispatch("note", session)
    assert api.finish([new], STALE_S + 5)[new]["status"] == "succeeded"
