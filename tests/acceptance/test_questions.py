"""A turn asks a person and waits without a slot; the answer, or a cancel, lets its session go on."""

from __future__ import annotations

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet, new_session
from tests.support.journal import assert_sessions_in_order

pytestmark = [pytest.mark.process, pytest.mark.store]


def reply(api: Api, session: str, text: str) -> int:
    return api.request("POST", f"/api/sessions/{session}/reply", {"text": text}).status


def test_a_question_outlives_all_processes_and_its_answer_continues_the_same_turn(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(1)
    session = new_session()
    asking, *later = [api.dispatch("ask", session), api.dispatch("note", session), api.dispatch("note", session)]
    api.until(asking, "suspended", within=10)
    probe = api.dispatch("note")
    api.finish([probe], 10)
    assert [api.status(job) for job in later] == ["pending", "pending"], "the worker's one slot is free for others"
    worker.kill()
    fleet.kill_web()
    fleet.start_web()
    worker = fleet.worker(1)
    assert "which colour?" in api.explain(asking)["detail"]
    why = api.explain(later[1])
    assert (why["reason"], why["blocked_by"]) == ("behind_turn", asking)
    assert "which colour?" in why["detail"]
    shown = api.get(f"/api/sessions/{session}")
    assert (shown["status"], shown["needs_input"]["question"]) == ("needs_input", "which colour?")
    fleet.stop([worker])
    assert reply(api, session, "red") == 200
    assert reply(api, session, "blue") == 409
    fleet.kill_web()
    fleet.start_web()
    fleet.worker(1)
    jobs = api.finish([asking, *later], 15)
    assert jobs[asking]["result"]["reply"] == "red"
    assert jobs[asking]["attempt"] == 1
    assert [run.began["number"] for run in fleet.journal.runs(asking, *later)] == [1, 1, 2, 3]
    assert_sessions_in_order(fleet.journal, jobs.values())


def test_cancelling_the_question_instead_lets_the_later_turns_run(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    session = new_session()
    asking, *later = [api.dispatch("ask", session), api.dispatch("note", session), api.dispatch("note", session)]
    api.until(asking, "suspended", within=10)
    assert api.ok("cancel", job_id=asking)["cancel"] == "done"
    jobs = api.finish([asking, *later], 10)
    assert [job["status"] for job in jobs.values()] == ["cancelled", "succeeded", "succeeded"]
    assert reply(api, session, "red") == 409


def test_of_many_answers_one_is_taken(fleet: Fleet, api: Api) -> None:
    from concurrent.futures import ThreadPoolExecutor

    fleet.worker(1)
    session = new_session()
    asking = api.dispatch("ask", session)
    api.until(asking, "suspended", within=10)
    colours = [f"colour {number}" for number in range(12)]
    with ThreadPoolExecutor(12) as pool:
        statuses = list(pool.map(lambda colour: reply(api, session, colour), colours))
    assert sorted(statuses) == [200] + [409] * 11
    done = api.finish([asking], 10)[asking]
    assert done["result"]["reply"] == colours[statuses.index(200)]


def test_a_question_that_nobody_answers_is_answered_by_its_default(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    session = new_session()
    terms = {"remind_after_s": 1, "answer_within_s": 3, "default": "grey"}
    asking, later = api.dispatch("ask", session, payload={"terms": terms}), api.dispatch("note", session)
    api.until(asking, "suspended", within=10)
    shown = api.get(f"/api/sessions/{session}")["needs_input"]
    assert shown["default"] == "grey"
    jobs = api.finish([asking, later], 20)
    assert jobs[asking]["result"]["reply"] == "grey"
    told = [(event["event"], event["reason"]) for event in jobs[asking]["events"]]
    assert ("reminder", "nobody has answered") in told
    assert ("resumed", "input: default") in told
    assert reply(api, session, "red") == 409
