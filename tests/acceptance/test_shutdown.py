"""SIGTERM: no new claim, time to finish, then the rest is handed back with no attempt used."""

from __future__ import annotations

import signal
import time

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet, new_session
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.store]


def test_what_does_not_finish_in_the_grace_is_handed_back_and_starts_elsewhere_at_once(fleet: Fleet, api: Api) -> None:
    first = fleet.worker(1, "--grace", 3)
    job = api.dispatch("wait", s=15)
    fleet.until_begun(job)
    second = fleet.worker(1)
    told = time.monotonic()
    first.signal(signal.SIGTERM)
    assert first.wait(15) == 0
    gone = time.monotonic()
    assert gone - told >= 3
    run = fleet.until_begun(job, runs=2)
    assert run.pid == second.pid
    assert run.begin - gone < 2
    assert first.pid not in fleet.live_pids()
    done = api.finish([job], 40)[job]
    assert (done["status"], done["attempt"]) == ("succeeded", 1)


def until_two_are_seen(fleet: Fleet) -> None:
    """Only then does one row mean that the other consumer has left, and not that it has yet to come."""
    until(lambda: len(fleet.topology()["dispatch_workers"]) == 2, 10, "both consumers are there")


def test_a_short_turn_finishes_and_nothing_new_is_claimed(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(2, "--grace", 20)
    running = api.dispatch("wait", s=2)
    fleet.until_begun(running)
    until_two_are_seen(fleet)
    worker.signal(signal.SIGTERM)
    until(lambda: len(fleet.topology()["dispatch_workers"]) == 1, 5, "the idle consumer has left")
    waiting = api.dispatch("note")
    assert worker.wait(15) == 0
    assert api.status(running) == "succeeded"
    assert api.status(waiting) == "pending"
    assert fleet.topology()["dispatch_workers"] == []


def test_a_second_signal_hands_back_at_once(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(2, "--grace", 60)
    session = new_session()
    job, after = api.dispatch("wait", session, s=60), api.dispatch("note", session)
    fleet.until_begun(job)
    until_two_are_seen(fleet)
    worker.signal(signal.SIGTERM)
    until(lambda: len(fleet.topology()["dispatch_workers"]) == 1, 5, "the idle consumer has left")
    assert api.status(job) == "running"
    worker.signal(signal.SIGTERM)
    assert worker.wait(10) == 0
    shown = api.job(job)
    assert (shown["status"], shown["attempt"]) == ("pending", 0)
    assert shown["events"][-1]["event"] == "handback"
    assert api.explain(after)["blocked_by"] == job


def test_an_agent_that_does_not_listen_cannot_hold_the_process_back(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(1, "--grace", 0)
    job = api.dispatch("deaf", s=30)
    fleet.until_begun(job)
    worker.signal(signal.SIGTERM)
    assert worker.wait(10) == 0
    assert (api.status(job), api.job(job)["attempt"]) == ("pending", 0)


def test_async_turns_are_handed_back_too(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(1, "--capacity", 20, "--grace", 1)
    jobs = [api.dispatch("hold", s=60) for _ in range(20)]
    for job in jobs:
        fleet.until_begun(job)
    worker.signal(signal.SIGTERM)
    assert worker.wait(10) == 0
    assert {(api.status(job), api.job(job)["attempt"]) for job in jobs} == {("pending", 0)}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_leaves_at_once(fleet: Fleet, number: int) -> None:
    worker = fleet.worker(2)
    told = time.monotonic()
    worker.signal(number)
    assert worker.wait(10) == 0
    assert time.monotonic() - told < 3
    assert worker.pid not in fleet.live_pids()
