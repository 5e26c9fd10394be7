"""Workers that serve some agents only: what they lack waits for somebody who has it, and slows nobody else."""

from __future__ import annotations

import time

import pytest

from tests.support.api import Api
from tests.support.fleet import STALE_S, Fleet, new_session
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.store]
MORE = {"AGENT_MODULES": "tests.support.journal_agents,tests.support.elsewhere_agents"}


def test_a_job_for_an_agent_that_no_worker_has_waits_and_explain_names_it(fleet: Fleet, api: Api) -> None:
    fleet.stop([fleet.worker(1, env=MORE)])
    job = api.dispatch("elsewhere")
    assert api.explain(job)["detail"] == "no worker is live"
    fleet.worker(1)
    probe = api.dispatch("note")
    api.finish([probe], 10)
    why = api.explain(job)
    assert (why["reason"], why["runnable"]) == ("no_agent", False)
    assert "elsewhere" in why["detail"]
    assert (api.status(job), api.job(job)["attempt"]) == ("pending", 0)
    having = fleet.worker(1, env=MORE)
    assert api.finish([job], 10)[job]["result"]["pid"] == having.pid
    assert len(fleet.journal.runs(job)) == 1


def test_an_agent_that_nobody_has_ever_announced_is_refused(api: Api) -> None:
    answer = api.call("dispatch", task="x", agent_name="never-heard-of")
    assert (answer.status, list(answer.json()["fields"])) == (400, ["agent_name"])


def test_when_the_last_worker_of_a_pool_is_gone_its_turns_wait_and_another_pool_is_not_slowed(
    fleet: Fleet, api: Api
) -> None:
    waits = fleet.worker(1, "--agents", "wait")
    fleet.worker(1, "--agents", "note,boom")
    first = api.dispatch("wait", s=0.1)
    assert api.finish([first], 10)[first]["result"]["pid"] == waits.pid
    waits.kill()
    session = new_session()
    left = [api.dispatch("wait", session, s=0.1), *(api.dispatch("wait", s=0.1) for _ in range(60))]
    until(lambda: api.explain(left[0])["reason"] == "no_agent", STALE_S + 5, "the pool has no live worker")
    assert "wait" in api.explain(left[0])["detail"]
    evidence = fleet.topology()["evidence"]
    assert (evidence["status"], evidence["ready"]) == ("healthy", True)
    assert "turns_without_worker" in evidence["dependencies"]["worker_registry"]["diagnostics"]
    scraped = fleet.platform().request("GET", "/metrics").text.splitlines()
    assert f"agent_utilities_dispatch_turns_without_worker {len(left)}.0" in scraped
    asked = time.monotonic()
    probes = [api.dispatch("note") for _ in range(20)]
    api.finish(probes, 10)
    assert time.monotonic() - asked < 4
    assert {job["status"] for job in api.jobs("pending")} == {"pending"}
    assert not fleet.journal.runs(*left)
    back = fleet.worker(4, "--agents", "wait")
    jobs = api.finish(left, 30)
    assert {job["result"]["pid"] for job in jobs.values()} == {back.pid}
    assert {job["attempt"] for job in jobs.values()} == {1}
