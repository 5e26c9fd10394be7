"""The state file goes away under a running worker: it says so, makes no new one, and goes on when it is back."""

from __future__ import annotations

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet
from tests.support.processes import until

pytestmark = pytest.mark.process
BLIND = "the store cannot be reached"


def test_a_worker_goes_on_when_the_state_file_is_back(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(1)
    away = fleet.state_file.with_suffix(".away")
    fleet.state_file.rename(away)
    try:
        worker.wait_for_text(BLIND, 20)
        assert api.call("dispatch", task="x", agent_name="note").status == 503
        until(lambda: fleet.anyone().request("GET", "/readyz").status == 503, 10, "it is not ready")
        assert not fleet.state_file.exists(), "nobody makes a new, empty one"
    finally:
        away.rename(fleet.state_file)
    until(lambda: api.call("list").status == 200, 10, "the API answers again")
    job = api.dispatch("note")
    assert api.finish([job], 20)[job]["result"]["pid"] == worker.pid
    assert worker.alive


@pytest.mark.slow
def test_a_worker_that_stays_blind_exits_non_zero(fleet: Fleet) -> None:
    worker = fleet.worker(2)
    away = fleet.state_file.with_suffix(".away")
    fleet.state_file.rename(away)
    try:
        assert worker.wait(45) == 1, worker.tail()
        assert not fleet.state_file.exists()
    finally:
        away.rename(fleet.state_file)
    until(lambda: fleet.anyone().request("GET", "/healthz").status == 200, 10, "the web process lives")
