"""A worker that grows its own capacity while work waits, and shrinks it again."""

from __future__ import annotations

import pytest

from dispatch.worker.capacity import SHRINK_S
from tests.support.api import Api
from tests.support.fleet import Fleet
from tests.support.processes import until

pytestmark = pytest.mark.process


def test_a_worker_grows_to_what_waits_and_shrinks_when_it_is_done(fleet: Fleet, api: Api) -> None:
    fleet.worker(1, "--capacity", 1, "--max-capacity", 8)

    def capacity() -> int:
        (row,) = fleet.topology()["dispatch_workers"]
        return int(row["capacity"])

    assert capacity() == 1
    jobs = [api.dispatch("hold", s=8) for _ in range(6)]
    for job in jobs:
        fleet.until_begun(job)
    assert {api.status(job) for job in jobs} == {"running"}, "all of them at once"
    until(lambda: capacity() in (7, 8), 5, "the registry shows it")
    api.finish(jobs, 20)
    until(lambda: capacity() == 1, 3 * SHRINK_S, "it has given up what stood empty")


@pytest.mark.parametrize("wrong", ["0", "many", "-1", "1"])
def test_a_bound_that_is_none_is_refused_and_named(fleet: Fleet, wrong: str) -> None:
    worker = fleet.launch(1, "--capacity", 2, f"--max-capacity={wrong}")
    assert worker.wait(20) == 2
    assert "--max-capacity" in worker.text()
