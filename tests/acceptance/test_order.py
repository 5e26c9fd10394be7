"""Turns of one session run strictly one after another; sessions run side by side."""

from __future__ import annotations

import random
import time

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet, new_session
from tests.support.journal import assert_sessions_in_order
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.store]


def test_a_busy_session_holds_one_slot_and_the_others_go_on(fleet: Fleet, api: Api) -> None:
    fleet.until_live(*[fleet.launch(2) for _ in range(2)])
    busy = new_session()
    turns = [api.dispatch("wait", busy, s=1) for _ in range(5)]
    fleet.until_begun(turns[0])
    asked = time.monotonic()
    others = [api.dispatch("note") for _ in range(3)]
    api.finish(others, 10)
    ends = [run.end for run in fleet.journal.runs(*others)]
    assert max(end for end in ends if end is not None) - asked < 2
    assert_sessions_in_order(fleet.journal, api.finish(turns, 20).values())


def test_thirty_turns_with_any_priorities_keep_their_order_over_two_processes(fleet: Fleet, api: Api) -> None:
    fleet.until_live(*[fleet.launch(4) for _ in range(2)])
    chosen, session = random.Random(7), new_session()
    priorities = ["critical", "high", "normal", "low"]
    turns = [api.dispatch("note", session, task=str(n), priority=chosen.choice(priorities)) for n in range(30)]
    others = [api.dispatch("wait", s=2) for _ in range(8)]
    jobs = api.finish([*turns, *others], 30)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    runs = fleet.journal.runs(*turns)
    assert [run.began["task"] for run in runs] == [str(n) for n in range(30)]
    assert [run.began["number"] for run in runs] == list(range(1, 31))
    assert_sessions_in_order(fleet.journal, jobs.values())
    beside = fleet.journal.runs(*others)
    assert len(beside) == 8
    assert max(run.end or 0 for run in beside) - beside[0].begin < 5, "eight consumers run eight sessions side by side"


def test_a_turn_behind_a_retry_waits_for_it_and_another_session_does_not(fleet: Fleet, api: Api) -> None:
    fleet.worker(2)
    session = new_session()
    first = api.dispatch("again", session, payload={"after": 4})
    second = api.dispatch("note", session)
    until(lambda: fleet.journal.events(first, "again"), 15, "the first turn asks for its retry")
    asked = time.monotonic()
    api.finish([api.dispatch("note")], 10)
    assert time.monotonic() - asked < 3
    assert api.explain(second)["reason"] == "behind_turn"
    assert "retries in" in api.explain(second)["detail"]
    assert_sessions_in_order(fleet.journal, api.finish([first, second], 20).values())
    runs = fleet.journal.runs(first, second)
    assert [run.job for run in runs] == [first, first, second]
    assert runs[1].begin - (runs[0].end or 0) >= 4


def test_priority_orders_sessions_and_never_the_turns_of_one(fleet: Fleet, api: Api) -> None:
    session = new_session()
    low, critical = (api.dispatch("note", session, task=p, priority=p) for p in ("low", "critical"))
    others = [api.dispatch("note", task=p, priority=p) for p in ("low", "normal", "high", "critical")]
    fleet.worker(1)
    api.finish([low, critical, *others], 20)
    assert [run.job for run in fleet.journal.runs(low, critical)] == [low, critical]
    assert [run.began["task"] for run in fleet.journal.runs(*others)] == ["critical", "high", "normal", "low"]


def test_tenants_are_served_in_turn_whatever_their_priorities(fleet: Fleet, api: Api) -> None:
    body = {"task": "x", "agent_name": "note", "priority": "critical"}
    many = [handle["job_id"] for handle in api.ok("dispatch_many", jobs=[body] * 40)["jobs"]]
    one = fleet.api("t2").dispatch("note", priority="low")
    fleet.worker(1)
    fleet.api("t2").finish([one], 20)
    api.finish(many, 30)
    assert [run.job for run in fleet.journal.runs(one, *many)].index(one) < 5
