"""Turns by a broker: the order of a session holds, and slow turns hold back nobody else."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka.admin import AdminClient

from dispatch.transports.kafka.admin import KafkaAdmin
from dispatch.transports.kafka.client import BrokerWatch, KafkaSettings
from tests.support.api import Api
from tests.support.fleet import Fleet, new_session
from tests.support.journal import assert_sessions_in_order
from tests.support.kafka import KafkaBroker
from tests.support.processes import until

pytestmark = [pytest.mark.process, pytest.mark.kafka]


@pytest.mark.store
def test_thirty_turns_of_one_session_run_in_their_order_beside_others(fleet: Fleet, api: Api) -> None:
    for _ in range(2):
        fleet.worker(2, "--capacity", 4)
    busy, order = new_session(), random.Random(4)
    priorities = ["critical", "high", "normal", "low"]
    turns = [api.dispatch("note", busy, priority=order.choice(priorities)) for _ in range(30)]
    others = [api.dispatch("wait", s=1) for _ in range(8)]
    jobs = api.finish([*turns, *others], 60)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    assert_sessions_in_order(fleet.journal, jobs.values())
    assert [run.job for run in fleet.journal.runs(*turns)] == turns
    assert len(fleet.journal.runs(*others)) == 8, "each once"


def test_a_slow_turn_does_not_hold_back_other_sessions_of_its_partition(fleet: Fleet, api: Api) -> None:
    fleet.worker(1, "--capacity", 4)
    slow = api.dispatch("wait", s=60)
    fleet.until_begun(slow)
    began = time.monotonic()
    quick = [api.dispatch("note", new_session()) for _ in range(20)]
    api.finish(quick, 20)
    assert time.monotonic() - began < 20
    assert api.status(slow) == "running"


def test_a_session_keeps_its_order_while_partitions_are_added(fleet: Fleet, api: Api, broker: KafkaBroker) -> None:
    session = new_session()
    first = [api.dispatch("note", session) for _ in range(10)]
    topics = AdminClient({"bootstrap.servers": broker.servers}).list_topics(timeout=10).topics
    more = len(topics["agent_turns"].partitions) + 4
    grown = fleet.worker(2, "--capacity", 4, env={"AGENT_TURNS_PARTITIONS": more})
    second = [api.dispatch("note", session) for _ in range(10)]
    jobs = api.finish([*first, *second], 60)
    assert_sessions_in_order(fleet.journal, jobs.values())
    assert [run.job for run in fleet.journal.runs(*first, *second)] == [*first, *second]
    grown.wait_for_text("kafka topic grown", 5)
    fewer = fleet.worker(1)
    fewer.wait_for_text("kafka topic has more partitions than AGENT_TURNS_PARTITIONS", 5)


def test_of_those_who_add_partitions_at_the_same_time_each_finds_them_added(fleet: Fleet, broker: KafkaBroker) -> None:
    topics = AdminClient({"bootstrap.servers": broker.servers}).list_topics(timeout=10).topics
    there = len(topics["agent_turns"].partitions) if "agent_turns" in topics else 0
    asked = [
        KafkaAdmin(KafkaSettings(servers=(broker.servers,), partitions=there + 1 + number % 3), BrokerWatch())
        for number in range(9)
    ]
    start = threading.Barrier(len(asked))

    def ensure(admin: KafkaAdmin) -> None:
        admin.client().list_topics(timeout=10)
        start.wait(20)
        admin.ensure_topic()

    with ThreadPoolExecutor(len(asked)) as threads:
        list(threads.map(ensure, asked))
    client = AdminClient({"bootstrap.servers": broker.servers})
    until(
        lambda: len(client.list_topics("agent_turns").topics["agent_turns"].partitions) == there + 3,
        10,
        "they are there",
    )


def test_a_turn_longer_than_the_poll_interval_starts_once(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    job = api.dispatch("wait", s=10)
    fleet.until_begun(job)
    fleet.worker(1)  # a rebalance in the middle of it
    done = api.finish([job], 30)[job]
    assert (done["status"], done["attempt"]) == ("succeeded", 1)
    assert fleet.epochs(job) == [1]
    assert len(fleet.journal.runs(job)) == 1


def test_a_pool_gets_its_turns_whatever_partition_they_lie_in(fleet: Fleet, api: Api) -> None:
    fleet.worker(1, "--agents", "wait")
    fleet.worker(1, "--agents", "note")
    jobs = api.finish([api.dispatch(name, s=0) for name in ("note", "wait") * 4], 30)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}


def test_a_worker_that_runs_once_needs_no_partition(fleet: Fleet, api: Api) -> None:
    jobs = [api.dispatch("note") for _ in range(3)]
    assert fleet.launch(1, "--drain").wait(30) == 0
    assert {api.status(job) for job in jobs} == {"succeeded"}


def test_a_question_is_answered_over_a_restart(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(1)
    session = new_session()
    asking, *later = [api.dispatch("ask", session), api.dispatch("note", session), api.dispatch("note", session)]
    api.until(asking, "suspended", within=20)
    worker.kill()
    assert [api.status(job) for job in later] == ["pending", "pending"]
    fleet.worker(1)
    answer = api.request("POST", f"/api/sessions/{session}/reply", {"text": "red"})
    assert answer.status == 200, answer.text
    jobs = api.finish([asking, *later], 30)
    assert_sessions_in_order(fleet.journal, jobs.values())
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
