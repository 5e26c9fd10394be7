"""Schedules in a real fleet: run by workers, one job for each due time whatever happens to the leader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.fleet import TICK_S, Fleet
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.store]

SCHEDULES = "/api/fleet/schedules"
GRACE_S = 4 * TICK_S
SECOND = timedelta(seconds=1)


class Clockwork:
    """One schedule of the fleet and the jobs that it made."""

    def __init__(self, fleet: Fleet, api: Api, name: str, **body: Any) -> None:
        self.fleet, self.api, self.name = fleet, api, name
        sent = {"name": name, "cron": "* * * * * *", "task": "tick", "agent_name": "note", **body}
        answer = api.request("POST", SCHEDULES, sent)
        assert answer.status == 201, answer.text

    def call(self, verb: str, **body: Any) -> Any:
        answer = self.api.request("POST", f"{SCHEDULES}/{self.name}/{verb}", body)
        assert answer.status in (200, 202), answer.text
        return answer.json()

    def jobs(self) -> dict[str, str]:
        """{due time: job id} of what the clock made, each due time once."""
        made = [job for job in self.api.jobs() if job["metadata"].get("schedule") == self.name]
        found = [(job["metadata"]["scheduled_for"], job["job_id"]) for job in reversed(made)]
        assert len(dict(found)) == len(found), "a due time has two jobs"
        return dict(found)

    def until_jobs(self, count: int, within: float) -> None:
        until(lambda: len(self.jobs()) >= count, within, f"{count} jobs of {self.name}")

    def stop(self) -> dict[str, str]:
        """Pause it; answers its jobs."""
        self.call("pause", reason="the test is over")
        return self.jobs()


@pytest.fixture(autouse=True)
def no_schedule_stays(fleet: Fleet) -> Iterator[None]:
    yield
    api = fleet.platform()
    for schedule in api.get(SCHEDULES)["schedules"]:
        api.request("DELETE", f"{SCHEDULES}/{schedule['name']}")


def each_second(due: dict[str, str]) -> None:
    moments = [datetime.fromisoformat(at) for at in due]
    gaps = [str(after) for before, after in pairwise(moments) if after - before != SECOND]
    assert not gaps, f"due times are missing before {gaps}"


def test_each_due_time_is_run_once_by_a_worker(fleet: Fleet, api: Api) -> None:
    fleet.worker(1, "--capacity", 4)
    clockwork = Clockwork(fleet, api, "every-second")
    clockwork.until_jobs(5, 20)
    due = clockwork.stop()
    each_second(due)
    ended = api.finish(due.values(), 20)
    assert {job["status"] for job in ended.values()} == {"succeeded"}
    assert all(len(fleet.journal.runs(job)) == 1 for job in due.values())
    time.sleep(2)
    assert clockwork.jobs() == due, "a paused schedule goes on"
    shown = api.get(f"{SCHEDULES}/every-second")
    assert (shown["next_run_at"], shown["last_job_id"]) == (None, list(due.values())[-1])
    assert {run["status"] for run in shown["runs"]} == {"succeeded"}


@pytest.mark.slow
def test_when_the_leader_is_killed_again_and_again_no_due_time_is_missing_and_none_comes_twice(
    fleet: Fleet, api: Api
) -> None:
    clockwork = Clockwork(fleet, api, "hunted", catch_up="all")
    workers = [fleet.worker(1) for _ in range(2)]
    for _ in range(5):
        clockwork.until_jobs(len(clockwork.jobs()) + 1, 20)
        holder = fleet.state_sql("SELECT w.pid FROM leadership l JOIN dispatch_workers w ON w.token = l.holder")
        (leader,) = [worker for worker in workers if (worker.pid,) in holder]
        leader.kill()
        workers.remove(leader)
        workers.append(fleet.launch(1))
    begun = datetime.now(UTC)
    until(lambda: max(map(datetime.fromisoformat, clockwork.jobs())) > begun, 30, "the last leader has caught up")
    due = clockwork.stop()
    each_second(due)
    assert {job["status"] for job in api.finish(due.values(), 60).values()} == {"succeeded"}


def test_after_an_outage_the_newest_run_stands_for_all_that_were_missed(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(1)
    clockwork = Clockwork(fleet, api, "away")
    clockwork.until_jobs(1, 20)
    fleet.stop([worker])
    before = clockwork.jobs()
    time.sleep(GRACE_S + 3)
    back = datetime.now(UTC)
    fleet.worker(1)
    clockwork.until_jobs(len(before) + 2, 20)
    due = [datetime.fromisoformat(at) for at in clockwork.stop()]
    missed = [at for at in due[len(before) :] if at < back]
    assert len(missed) <= 1
    (told,) = [run for run in api.get(f"{SCHEDULES}/away")["runs"] if run["outcome"] == "missed"]
    assert told["count"] >= GRACE_S
    scraped = fleet.platform().request("GET", "/metrics").text
    assert f'agent_utilities_dispatch_schedule_runs_total{{outcome="missed"}} {told["count"]}.0' in scraped


def test_a_run_on_demand_needs_no_due_time(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    clockwork = Clockwork(fleet, api, "yearly", cron="0 0 1 1 *", timezone="America/New_York", enabled=False)
    job = clockwork.call("run", reason="to see")["job_id"]
    assert api.finish([job], 10)[job]["status"] == "succeeded"
    assert list(clockwork.jobs().values()) == [job]
