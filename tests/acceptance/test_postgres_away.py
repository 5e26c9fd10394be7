"""Postgres is away: it restarts, or it is frozen: connections stay up and nobody answers. Nobody waits for ever."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.api import Answer, Api
from tests.support.fleet import TTL_S, Fleet, Template
from tests.support.mcp_client import Tools, over_stdio, talk
from tests.support.postgres import PostgresCluster
from tests.support.processes import until

pytestmark = [
    pytest.mark.process,
    pytest.mark.store,
    pytest.mark.skipif(not os.environ.get("STATE_DB_URI"), reason="about Postgres"),
]

BOUND_S = 10 + 3  # three for a busy machine
GRACE_S = 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    """A server of one's own: the tests' other databases must not be frozen."""
    with PostgresCluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def installation(cluster: PostgresCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    place = tmp_path_factory.mktemp("frozen")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STATE_DB_URI", cluster.uri("postgres"))
        template = Template.make(place / "template")
        with Fleet(place / "f", template) as fleet:
            yield fleet
        template.remove()


def answers_again(api: Api) -> None:
    until(lambda: api.call("list").status == 200, 15, "the API answers again")


def timed(call: Callable[[], Answer]) -> tuple[float, Answer]:
    begun = time.monotonic()
    answer = call()
    return time.monotonic() - begun, answer


def test_every_request_is_answered_in_bounded_time_and_the_process_stays_alive(
    fleet: Fleet, api: Api, cluster: PostgresCluster
) -> None:
    known = api.dispatch("note")
    calls: list[Callable[[], Answer]] = [
        lambda: api.call("dispatch", task="x", agent_name="note"),
        lambda: api.call("status", job_id=known),
        lambda: api.call("list", status="pending"),
        lambda: api.request("GET", "/api/fleet/health"),
        lambda: api.request("GET", "/api/fleet/topology"),
        lambda: api.request("GET", "/metrics"),
        lambda: fleet.anyone().request("GET", "/readyz"),
        lambda: fleet.anyone().request("GET", "/admin/login/"),
    ]
    alive = fleet.anyone()
    for call in calls:
        call()  # connections are open, as in a process that has been at work
    with ThreadPoolExecutor(3 * len(calls)) as pool, cluster.frozen():
        for _ in range(2):  # the first to meet the silence, and those who come when it is known
            waiting = [pool.submit(timed, call) for call in calls * 2]
            took, beat = timed(lambda: alive.request("GET", "/healthz"))
            assert (beat.status, took < BOUND_S) == (200, True)
            answers = [one.result() for one in waiting]
            assert max(took for took, _ in answers) < BOUND_S
            for number, (_, answer) in enumerate(answers):
                if number % len(calls) < len(calls) - 2:
                    assert (answer.status, answer.json()["code"]) == (503, "store_unavailable"), answer.text
        took, beat = timed(lambda: alive.request("GET", "/healthz"))
        assert (beat.status, took < 2) == (200, True)
    answers_again(api)
    assert api.status(known) == "pending"
    assert api.dispatch("note")


def test_a_request_that_the_silence_meets_in_its_midst_is_ended_too(
    fleet: Fleet, api: Api, cluster: PostgresCluster
) -> None:
    job = api.dispatch("note")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(timed, lambda: api.call("wait", job_id=job, timeout_s=30))
        time.sleep(1)  # it looks again and again
        with cluster.frozen():
            took, answer = waiting.result()
    assert (answer.status, answer.json()["code"]) == (503, "store_unavailable")
    assert took < 1 + BOUND_S
    answers_again(api)


def test_a_tool_of_the_mcp_server_is_answered_in_bounded_time_too(
    fleet: Fleet, api: Api, cluster: PostgresCluster, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text(fleet._keys["t1"])

    async def say(tools: Tools) -> tuple[float, bool, str]:
        await tools.call("graph_orchestrate", action="list")
        with cluster.frozen():
            begun = time.monotonic()
            failed, text = await tools.call("graph_orchestrate", action="list")
            return time.monotonic() - begun, failed, text

    took, failed, text = talk(over_stdio(fleet.variables(AGENT_API_KEY_FILE=key)), say)
    assert (failed, json.loads(text)["code"]) == (True, "store_unavailable")
    assert took < BOUND_S
    answers_again(api)


def test_a_worker_that_is_told_to_stop_ends_soon_after_its_grace_and_leaves_its_turn_to_the_lease(
    fleet: Fleet, api: Api, cluster: PostgresCluster
) -> None:
    worker = fleet.worker(1, "--grace", GRACE_S)
    job = api.dispatch("wait", s=60)
    fleet.until_begun(job)
    with cluster.frozen():
        told = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait(GRACE_S + 10) == 1, worker.tail()
        assert time.monotonic() - told >= GRACE_S
    answers_again(api)
    other = fleet.worker(1)
    assert fleet.until_begun(job, runs=2, within=TTL_S + 15).pid == other.pid
    api.ok("cancel", job_id=job)


@pytest.mark.parametrize("away", ["frozen", "stopped"])
def test_an_idle_worker_that_is_told_to_stop_does_not_wait_for_it(
    fleet: Fleet, api: Api, cluster: PostgresCluster, away: str
) -> None:
    worker = fleet.worker(2, "--grace", 60)
    if away == "stopped":
        cluster.stop()
        try:
            worker.signal(signal.SIGTERM)
            assert worker.wait(10) == 1, worker.tail()
        finally:
            cluster.start()
    else:
        with cluster.frozen():
            worker.signal(signal.SIGTERM)
            assert worker.wait(10) == 1, worker.tail()
    answers_again(api)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_claims_resume_after_each_restart_and_no_attempt_is_used_up(
    fleet: Fleet, api: Api, cluster: PostgresCluster
) -> None:
    fleet.worker(2)
    api.finish([api.dispatch("note")], 10)
    for number in (signal.SIGINT, signal.SIGQUIT) * 3:  # in order, and as a crash
        cluster.stop(number)
        until(lambda: fleet.anyone().request("GET", "/readyz").status == 503, 15, "health says so")
        cluster.start()
        answers_again(api)
        job = api.dispatch("note")
        done = api.finish([job], 30)[job]
        assert (done["status"], done["attempt"]) == ("succeeded", 1)
