"""A dispatch leaves a whole job or nothing, whatever dies or is away meanwhile."""

from __future__ import annotations

import http.client
import shutil
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet, Template, new_session
from tests.support.journal import assert_sessions_in_order
from tests.support.parts import about_files
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.store]


@pytest.fixture(scope="module")
def installation(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Four web processes."""
    with Fleet(tmp_path_factory.mktemp("fleet") / "f", template, web=4) as fleet:
        yield fleet


def test_killing_the_web_processes_loses_no_handle_and_leaves_no_half_job(fleet: Fleet) -> None:
    api = fleet.api("t2")
    fleet.worker(2, "--capacity", 4)
    handles: list[str] = []
    wanted: list[int] = []
    lock, over = threading.Lock(), threading.Event()

    def produce(session: str) -> None:
        while not over.is_set():
            try:
                answer = api.call("dispatch", task="x", agent_name="note", session_id=session, timeout=10)
            except (OSError, http.client.HTTPException):
                over.wait(0.05)
                continue
            if answer.status == 202:
                with lock:
                    handles.append(answer.json()["job_id"])

    sessions = [new_session() for _ in range(4)]
    producers = [threading.Thread(target=produce, args=(session,)) for session in sessions]
    for producer in producers:
        producer.start()
    try:
        for number in range(1, 4):
            wanted.append(40 * number)
            until(lambda: len(handles) >= wanted[-1], 30, "dispatches are accepted")
            fleet.kill_web()
            fleet.start_web()
    finally:
        over.set()
        for producer in producers:
            producer.join()
    listed = {job["job_id"] for job in api.jobs() if job["session_id"] in sessions}
    assert set(handles) <= listed
    jobs = api.finish(sorted(listed), 40)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}, "a half job among those without an answer"
    assert_sessions_in_order(fleet.journal, jobs.values())
    assert len(fleet.journal.runs(*listed)) == len(listed)


@about_files
def test_while_the_queue_cannot_be_used_a_dispatch_is_503_and_leaves_no_row(fleet: Fleet, api: Api) -> None:
    waiting = api.dispatch("note")
    before = len(api.jobs())
    for path in fleet.data.glob(f"{fleet.queue_file.name}*"):
        path.unlink()
    fleet.queue_file.mkdir()
    try:
        answer = api.call("dispatch", task="x", agent_name="note")
        assert (answer.status, answer.json()["code"]) == (503, "queue_unavailable")
        many = api.call("dispatch_many", jobs=[{"task": "x", "agent_name": "note"}] * 2)
        assert many.status == 503
        assert len(api.jobs()) == before
        evidence = fleet.topology()["evidence"]
        assert (evidence["status"], evidence["ready"]) == ("partial", False)
        assert evidence["dependencies"]["dispatch_queue"]["status"] == "unavailable"
    finally:
        shutil.rmtree(fleet.queue_file)
    after = api.dispatch("note")
    fleet.worker(1)
    jobs = api.finish([waiting, after], 15)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}, "the lost queue was made again from the state"
    until(lambda: fleet.topology()["evidence"]["status"] == "healthy", 10, "health is healthy again")


def test_fifty_equal_posts_with_one_key_are_one_job_and_fifty_equal_handles(fleet: Fleet, api: Api) -> None:
    key = uuid.uuid4().hex
    body: dict[str, Any] = {"task": "x", "agent_name": "note", "idempotency_key": key}
    with ThreadPoolExecutor(50) as pool:
        answers = [one.result() for one in [pool.submit(lambda: api.call("dispatch", **body)) for _ in range(50)]]
    assert sorted(answer.status for answer in answers) == [200] * 49 + [202]
    handles = [answer.json() for answer in answers]
    assert sum(bool(handle.pop("replayed", False)) for handle in handles) == 49
    assert all(handle == handles[0] for handle in handles)
    job = handles[0]["job_id"]
    assert [one["job_id"] for one in api.jobs()].count(job) == 1
    other = api.call("dispatch", **{**body, "task": "y", "priority": "low"})
    assert (other.status, other.json()["code"]) == (409, "idempotency_conflict")
    assert set(other.json()["fields"]) == {"task", "priority"}
    theirs = fleet.api("t2").call("dispatch", **body)
    assert theirs.status == 202
    assert theirs.json()["job_id"] != job


@about_files
def test_a_caller_that_gave_up_waiting_finds_the_same_job_with_its_key(fleet: Fleet, api: Api) -> None:
    def gives_up(body: dict[str, Any]) -> bool:
        with closing(sqlite3.connect(fleet.queue_file, isolation_level=None, timeout=30)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            try:
                api.call("dispatch", timeout=1, **body)
            except TimeoutError:
                return True
        return False  # a thread that still had a file of an earlier test open has made a new one, which nobody holds

    api.dispatch("note")  # makes the queue's file, which holding alone would leave an empty one
    for _ in range(40):
        body: dict[str, Any] = {"task": "x", "agent_name": "note", "idempotency_key": uuid.uuid4().hex}
        before = len(api.jobs())
        if gives_up(body):
            break
    else:
        pytest.fail("no dispatch ever waited for the queue that is held")
    again = api.ok("dispatch", **body)
    assert api.ok("dispatch", **body)["job_id"] == again["job_id"]
    assert len(api.jobs()) == before + 1


@about_files
def test_repeating_a_key_while_the_queue_is_away_leaves_the_original_alone(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    key = uuid.uuid4().hex
    body: dict[str, Any] = {"task": "x", "agent_name": "wait", "payload": {"s": 3}, "idempotency_key": key}
    job = api.ok("dispatch", **body)["job_id"]
    fleet.until_begun(job)
    away = fleet.data / "queue.away"
    fleet.queue_file.rename(away)
    fleet.queue_file.mkdir()
    try:
        assert api.call("dispatch", **body).status in (200, 503)
        assert api.status(job) == "running"
    finally:
        fleet.queue_file.rmdir()
        away.rename(fleet.queue_file)
    assert api.finish([job], 20)[job]["attempt"] == 1
    assert len(fleet.journal.runs(job)) == 1


def test_the_bound_holds_whoever_posts_and_a_refusal_leaves_no_row(
    template: Template, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("bound") / "f"
    with Fleet(place, template, web=2, AGENT_DISPATCH_MAX_DEPTH=20) as fleet:
        api = fleet.api()
        with ThreadPoolExecutor(10) as pool:
            posts = [pool.submit(api.call, "dispatch", task="x", agent_name="note") for _ in range(50)]
            answers = [post.result() for post in posts]
        assert sorted(answer.status for answer in answers) == [202] * 20 + [429] * 30
        refused = next(answer for answer in answers if answer.status == 429)
        assert refused.json()["code"] == "queue_full"
        assert int(refused.headers["Retry-After"]) > 0
        assert len(api.jobs()) == 20
        assert fleet.launch(2, "--drain").wait(30) == 0
        began = time.monotonic()
        api.dispatch("note")
        assert time.monotonic() - began < 5
