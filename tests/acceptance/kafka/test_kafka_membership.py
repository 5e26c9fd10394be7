"""The ways to be a member of the group, by settings; and what a worker's port shows of it."""

from __future__ import annotations

import urllib.request

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet
from tests.support.processes import free_port, until

pytestmark = [pytest.mark.process, pytest.mark.kafka]
ASSIGNED = "kafka partitions assigned"


def test_members_by_the_newer_protocol_share_the_turns(fleet: Fleet, api: Api) -> None:
    newer = {"KAFKA_GROUP_PROTOCOL": "consumer"}
    members = [fleet.worker(1, env=newer), fleet.worker(1, env=newer)]
    for member in members:
        member.wait_for_text(ASSIGNED, 60)  # the group may remember a member that was killed for the broker's 45 s
    jobs = api.finish([api.dispatch("note") for _ in range(10)], 30)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    assert all(member.alive for member in members)


def test_a_member_with_a_name_of_its_own_comes_back_without_a_move(fleet: Fleet, api: Api) -> None:
    named = {"KAFKA_SESSION_TIMEOUT_S": 6}
    other = fleet.worker(1, env={**named, "KAFKA_GROUP_INSTANCE_ID": "second"})
    other.wait_for_text(ASSIGNED, 30)
    first = fleet.worker(1, env={**named, "KAFKA_GROUP_INSTANCE_ID": "first"})
    first.wait_for_text(ASSIGNED, 30)
    moves = other.text().count("kafka partitions")
    first.kill()
    again = fleet.worker(1, env={**named, "KAFKA_GROUP_INSTANCE_ID": "first"})
    again.wait_for_text(ASSIGNED, 30)
    jobs = api.finish([api.dispatch("note") for _ in range(6)], 30)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    assert other.text().count("kafka partitions") == moves


def test_a_second_process_with_the_same_name_takes_over_and_the_first_one_works_on_by_rows(
    fleet: Fleet, api: Api
) -> None:
    named = {"KAFKA_GROUP_INSTANCE_ID": "twin"}
    first = fleet.worker(1, env=named)
    first.wait_for_text(ASSIGNED, 30)
    second = fleet.worker(1, env=named)
    second.wait_for_text(ASSIGNED, 30)
    first.wait_for_text("kafka membership ended", 30)
    jobs = api.finish([api.dispatch("note") for _ in range(10)], 30)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    assert len(fleet.journal.runs(*jobs)) == 10, "each once"
    assert first.alive
    assert second.alive
    assert first.text().count("kafka membership ended") == 1, "it does not throw the other out in turn"


def test_by_the_newer_protocol_a_name_that_is_not_free_yet_is_waited_for(fleet: Fleet, api: Api) -> None:
    named = {"KAFKA_GROUP_PROTOCOL": "consumer", "KAFKA_GROUP_INSTANCE_ID": "reborn"}
    first = fleet.worker(1, env=named)
    first.wait_for_text(ASSIGNED, 30)
    first.kill()  # the group remembers it until its session is over
    again = fleet.worker(1, env=named)
    again.wait_for_text("kafka membership ended", 30)
    jobs = api.finish([api.dispatch("note") for _ in range(4)], 30)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    again.wait_for_text(ASSIGNED, 30)
    assert again.text().count("kafka membership ended") == 1, "said once, not for each attempt"


def test_a_workers_port_shows_lag_rebalances_and_what_was_parked(fleet: Fleet, api: Api) -> None:
    port = free_port()
    worker = fleet.worker(1, "--metrics-port", port)
    worker.wait_for_text(ASSIGNED, 30)
    session = "parks"
    api.finish([api.dispatch("wait", session, s=0.5), *(api.dispatch("note", session) for _ in range(4))], 30)

    def scrape() -> dict[str, float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[0] != "#")}

    prefix = "agent_utilities_dispatch"
    until(lambda: scrape().get(f'{prefix}_queue_depth{{backend="kafka"}}') == 0, 20, "all is acked", every=0.3)
    seen = scrape()
    assert seen[f'{prefix}_kafka_rebalances_total{{change="assigned"}}'] >= 1
    assert seen[f"{prefix}_kafka_parked_total"] >= 1
    assert f"{prefix}_kafka_republished_total" in seen
