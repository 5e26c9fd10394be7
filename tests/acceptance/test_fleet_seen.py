"""What is shown of the fleet is what is so: workers that come, work, leave and die, and numbers whoever is asked."""

from __future__ import annotations

import signal
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.api import Api
from tests.support.fleet import STALE_S, Fleet, Template, new_session
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.store]
CONSUMERS = 10


def test_a_worker_is_listed_with_its_session_at_every_look_while_it_works_longer_than_a_beat_is_good_for(
    fleet: Fleet, api: Api
) -> None:
    worker = fleet.worker(1)
    session = new_session()
    job = api.dispatch("wait", session, s=2 * STALE_S)
    fleet.until_begun(job)
    looks = 0
    while api.status(job) == "running":
        shown = {row["worker_id"].split(":")[1]: row["active_sessions"] for row in fleet.topology()["dispatch_workers"]}
        assert session in shown[str(worker.pid)] or api.status(job) != "running"
        looks += 1
        time.sleep(0.1)
    assert looks > 10


def test_of_fifty_workers_those_that_leave_are_gone_at_once_and_the_killed_when_they_are_stale(fleet: Fleet) -> None:
    procs = [fleet.launch(CONSUMERS) for _ in range(5)]
    fleet.until_live(*procs, within=90)
    until(lambda: len(fleet.topology()["dispatch_workers"]) == 50, 10, "each claim loop is listed")
    *leaving, killed = procs
    for proc in leaving:
        proc.signal(signal.SIGTERM)
    assert [proc.wait(30) for proc in leaving] == [0] * 4
    assert [proc.pid for proc in leaving if proc.pid in fleet.live_pids()] == []
    killed.kill()
    died = time.monotonic()
    assert len(fleet.topology()["dispatch_workers"]) == CONSUMERS, "nobody knows yet"
    until(lambda: not fleet.topology()["dispatch_workers"], STALE_S + 5, "it is stale")
    assert time.monotonic() - died > 1
    rows = "SELECT count(*) FROM dispatch_workers WHERE pid = ?"
    assert fleet.state_sql(rows, killed.pid) == [(CONSUMERS,)], "its rows stay a while, for who looks into it"


def test_whichever_of_four_web_processes_is_scraped_the_numbers_are_those_of_the_store(
    template: Template, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Fleet(tmp_path_factory.mktemp("scraped") / "f", template, web=4) as fleet:
        api = fleet.api()
        fleet.worker(3)
        held = new_session()
        first = api.dispatch("wait", held, s=60)
        fleet.until_begun(first)
        waiting = [api.dispatch("note", held) for _ in range(4)]
        api.finish([api.dispatch("note") for _ in range(100)], 60)
        for _ in range(20):
            assert scraped(fleet) == stored(fleet) == (1 + len(waiting), 3, 100)


def scraped(fleet: Fleet) -> tuple[float, float, float]:
    """Depth, workers and completed turns."""
    name = "agent_utilities_dispatch_"
    text = fleet.platform().request("GET", "/metrics").text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    found = {(one.name.removeprefix(name), one.labels.get("outcome", "")): one.value for one in samples}
    return found["queue_depth", ""], found["workers", ""], found["turns_total", "completed"]


def stored(fleet: Fleet) -> tuple[float, float, float]:
    ((depth,),) = fleet.queue_sql("SELECT count(*) FROM agent_dispatch_queue")
    ((workers,),) = fleet.state_sql("SELECT count(*) FROM dispatch_workers")
    ((ended,),) = fleet.state_sql("SELECT count(*) FROM work_items WHERE status = 'succeeded'")
    return depth, workers, ended
