"""The network between a worker and Postgres falls silent: the worker goes on when it speaks again, or exits."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.api import Api
from tests.support.fleet import STALE_S, TTL_S, Fleet
from tests.support.processes import Proc, until
from tests.support.proxy import Proxy

pytestmark = [
    pytest.mark.process,
    pytest.mark.store,
    pytest.mark.skipif(not os.environ.get("STATE_DB_URI"), reason="about the network to Postgres"),
]


@pytest.fixture
def proxy(fleet: Fleet) -> Iterator[Proxy]:
    assert fleet.state_uri is not None
    with Proxy(port_of(fleet.state_uri)) as proxy:
        yield proxy


def port_of(uri: str) -> int:
    return int(str(conninfo_to_dict(uri)["port"]))


def worker_behind(proxy: Proxy, fleet: Fleet) -> Proc:
    assert fleet.state_uri is not None
    uri = fleet.state_uri.replace(f":{port_of(fleet.state_uri)}/", f":{proxy.port}/")
    return fleet.worker(1, "--capacity", 2, env={"STATE_DB_URI": uri})


def test_a_worker_goes_on_when_the_network_speaks_again_and_its_beat_was_silent_meanwhile(
    fleet: Fleet, api: Api, proxy: Proxy
) -> None:
    worker = worker_behind(proxy, fleet)
    first = api.dispatch("note")
    api.finish([first], 10)
    proxy.hold()
    lost = api.dispatch("note")
    until(lambda: worker.pid not in fleet.live_pids(), STALE_S + 4, "nothing beats for a loop that gets no answer")
    assert worker.alive
    proxy.go_on()
    assert api.finish([lost], 2 * TTL_S + 10)[lost]["status"] == "succeeded"
    until(lambda: worker.pid in fleet.live_pids(), 10, "it is live again")
    assert len(fleet.journal.events(lost, "end")) == 1
    fleet.stop([worker])  # while the proxy is there


@pytest.mark.slow
def test_a_worker_that_gets_no_answer_exits_non_zero_and_another_takes_its_turn(
    fleet: Fleet, api: Api, proxy: Proxy
) -> None:
    worker = worker_behind(proxy, fleet)
    job = api.dispatch("wait", s=1)
    assert fleet.until_begun(job).pid == worker.pid
    proxy.hold()
    held = time.monotonic()
    other = fleet.worker(1)
    assert fleet.until_begun(job, runs=2, within=TTL_S + 10).pid == other.pid
    assert worker.wait(60) == 1, worker.tail()
    assert time.monotonic() - held < 45
    assert api.finish([job], 10)[job]["result"]["pid"] == other.pid
