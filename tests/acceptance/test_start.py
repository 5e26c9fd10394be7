"""How a worker process starts, what it refuses, and when it ends by itself."""

from __future__ import annotations

import http.client
import shutil
import sqlite3
import time
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest

from fleetsite.seed_names import DAEMON_ROLE_CLIENT, DAEMON_ROLE_VARIABLE
from tests.support.api import Api
from tests.support.fleet import Fleet
from tests.support.parts import about_files
from tests.support.processes import Proc, free_port, until

pytestmark = [pytest.mark.process, pytest.mark.store]


def assert_one_sentence(worker: Proc, *words: str) -> None:
    """Exit 2 and one line that holds the words."""
    assert worker.wait(30) == 2, worker.tail()
    (sentence,) = worker.text().strip().splitlines()
    for word in words:
        assert word in sentence


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AGENT_DISPATCH_RENEW_INTERVAL_S", 3),
        ("AGENT_DISPATCH_CLAIM_TTL_S", 301),
        ("AGENT_DISPATCH_CLAIM_TTL_S", "soon"),
        ("AGENT_TICKS", 1),
        ("STATE_DB_URI", "mysql://nobody@127.0.0.1/x"),
    ],
    ids=["renewal over a third of the lease", "lease over 300 s", "no number", "unknown", "no Postgres address"],
)
def test_a_wrong_setting_is_refused_with_one_sentence_that_names_it(fleet: Fleet, name: str, value: object) -> None:
    worker = fleet.launch(1, env={name: value})
    assert worker.wait(30) != 0
    (sentence,) = worker.text().strip().splitlines()
    assert name in sentence


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--agents", "nobody"), "--agents"),
        (("--kinds", "nothing"), "--kinds"),
        (("--capacity", 0), "--capacity"),
        (("--grace", -1), "--grace"),
    ],
)
def test_an_option_that_serves_nothing_is_refused(fleet: Fleet, options: tuple[object, ...], word: str) -> None:
    assert_one_sentence(fleet.launch(1, *options), word)


@about_files
def test_without_a_state_file_the_worker_makes_none_and_says_so(fleet: Fleet, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    assert_one_sentence(fleet.launch(1, env={"AGENT_DATA_DIR": empty}), "AGENT_DATA_DIR", "no state file")
    assert not (empty / fleet.state_file.name).exists()


@about_files
def test_with_pending_migrations_the_worker_does_not_start(fleet: Fleet, tmp_path: Path) -> None:
    behind = tmp_path / "behind"
    behind.mkdir()
    with closing(sqlite3.connect(fleet.state_file)) as here, closing(sqlite3.connect(behind / "copy")) as copy, copy:
        here.backup(copy)
        copy.execute("DELETE FROM django_migrations WHERE app = 'fleet'")
    shutil.move(behind / "copy", behind / fleet.state_file.name)
    assert_one_sentence(fleet.launch(1, env={"AGENT_DATA_DIR": behind}), "migrat")


def test_a_metrics_port_that_is_taken_is_refused(fleet: Fleet) -> None:
    assert_one_sentence(fleet.launch(1, "--metrics-port", fleet.port), "--metrics-port", str(fleet.port))


@pytest.mark.parametrize(
    "options", [("--metrics-port", 99999), ("--metrics-port", 9100, "--metrics-address", "nowhere.invalid")]
)
def test_a_port_or_an_address_that_cannot_serve_metrics_is_refused(fleet: Fleet, options: tuple[object, ...]) -> None:
    assert_one_sentence(fleet.launch(1, *options), "--metrics-port", "--metrics-address")


def test_metrics_are_served_at_the_address_that_is_asked_for(fleet: Fleet) -> None:
    port = free_port()
    fleet.worker(1, "--metrics-port", port, "--metrics-address", "127.0.0.2")
    with urllib.request.urlopen(f"http://127.0.0.2:{port}/metrics", timeout=5) as answer:
        assert b"agent_utilities_dispatch_workers" in answer.read()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)


def test_a_worker_serves_its_own_series_on_its_metrics_port(fleet: Fleet, api: Api) -> None:
    port = free_port()
    fleet.worker(1, "--metrics-port", port)
    done, failed = api.dispatch("note"), api.dispatch("boom", max_attempts=1)
    api.finish([done, failed], 15)

    def scrape() -> set[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return set(answer.read().decode().splitlines())

    wanted = {
        "agent_utilities_dispatch_claims_total 2.0",
        'agent_utilities_dispatch_settled_total{status="succeeded"} 1.0',
        'agent_utilities_dispatch_settled_total{status="dead_letter"} 1.0',
        'agent_utilities_dispatch_turns_total{outcome="completed"} 1.0',
        'agent_utilities_dispatch_turns_total{outcome="failed"} 1.0',
        'agent_utilities_dispatch_turns_total{outcome="expired"} 0.0',
        "agent_utilities_dispatch_workers 1.0",
        f'agent_utilities_dispatch_queue_depth{{backend="{fleet.queue_backend}"}} 0.0',
    }
    until(lambda: wanted <= scrape(), 5, "the series say what this process did")


def test_once_claims_once_runs_that_and_exits(fleet: Fleet, api: Api) -> None:
    jobs = [api.dispatch("note") for _ in range(5)]
    assert fleet.launch(1, "--once", "--capacity", 3).wait(30) == 0
    assert sorted(api.status(job) for job in jobs) == ["pending"] * 2 + ["succeeded"] * 3
    assert fleet.launch(2, "--once").wait(30) == 0
    assert {api.status(job) for job in jobs} == {"succeeded"}
    assert fleet.launch(1, "--once").wait(30) == 0, "nothing to do is no failure"
    assert fleet.topology()["dispatch_workers"] == []


def test_drain_runs_what_is_there_and_exits(fleet: Fleet, api: Api) -> None:
    jobs = [api.dispatch("wait", s=0.2) for _ in range(8)]
    assert fleet.launch(2, "--drain").wait(30) == 0
    assert {api.status(job) for job in jobs} == {"succeeded"}


def test_an_operators_drain_ends_a_worker_once_its_turn_has_ended(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(1)
    job = api.dispatch("wait", s=2)
    fleet.until_begun(job)
    (row,) = fleet.topology()["dispatch_workers"]
    answer = fleet.platform().request("POST", f"/api/fleet/workers/{row['worker_id']}/drain", {})
    assert answer.status == 200, answer.text
    assert worker.wait(15) == 0
    assert api.status(job) == "succeeded"


def test_agents_see_the_role_of_a_client_and_the_operators_own_variables(fleet: Fleet, api: Api) -> None:
    fleet.worker(1, env={"OPERATORS_OWN": "kept", DAEMON_ROLE_VARIABLE: "something else"})
    job = api.dispatch("look_around", payload={"names": ["OPERATORS_OWN", DAEMON_ROLE_VARIABLE]})
    seen = api.finish([job], 10)[job]["result"]["seen"]
    assert seen == {"OPERATORS_OWN": "kept", DAEMON_ROLE_VARIABLE: DAEMON_ROLE_CLIENT}


def test_a_connection_that_rested_longer_than_most_clients_keep_one_is_still_served(fleet: Fleet) -> None:
    """Else the server closes it while the client sends its next request on it."""
    with closing(http.client.HTTPConnection("127.0.0.1", fleet.port, timeout=10)) as connection:
        for rest_s in (0, 3):
            time.sleep(rest_s)
            connection.request("GET", "/healthz")
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200
