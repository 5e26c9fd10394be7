"""One worker process holds many async turns at once."""

from __future__ import annotations

import time

import pytest

from tests.support.api import Api
from tests.support.fleet import RENEW_S, Fleet
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.store]


def test_one_worker_holds_two_hundred_turns_renews_them_all_and_hears_a_cancel(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(1, "--capacity", 200)
    body = {"task": "x", "agent_name": "hold", "payload": {"s": 10}}
    jobs = [handle["job_id"] for handle in api.ok("dispatch_many", jobs=[body] * 200)["jobs"]]
    until(lambda: len(fleet.journal.runs(*jobs)) == 200, 15, "all of them run at once")
    assert all(run.end is None for run in fleet.journal.runs(*jobs))
    (row,) = fleet.topology()["dispatch_workers"]
    assert len(set(row["active_sessions"])) == 200 or until(
        lambda: len(fleet.topology()["dispatch_workers"][0]["active_sessions"]) == 200, RENEW_S + 2, "it shows them"
    )
    asked = time.monotonic()
    assert api.ok("cancel", job_id=jobs[0])["cancel"] == "requested"
    api.until(jobs[0], "cancelled", within=5)
    assert time.monotonic() - asked < 3
    until(lambda: len(api.jobs("running")) == 0, 30, "the others end", every=0.5)
    ended = [job for job in api.jobs() if job["job_id"] in set(jobs)]
    assert sorted(job["status"] for job in ended) == ["cancelled"] + ["succeeded"] * 199
    assert {job["attempt"] for job in ended} == {1}
    assert {run.pid for run in fleet.journal.runs(*jobs)} == {worker.pid}
    assert len(fleet.journal.runs(*jobs)) == 200
