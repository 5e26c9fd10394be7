"""Producer, member and lag against the client's own mock broker: quick, and no Java needed."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from dispatch.envelope import AgentTurnEnvelope
from dispatch.errors import QueueUnavailable, TaskQueueUnavailable
from dispatch.ports import Message
from dispatch.transports.kafka import KafkaSettings, KafkaTransport
from dispatch.transports.memory import MemoryTransport
from tests.support.mock_broker import PRODUCE, MockBroker
from tests.support.processes import until

ROOT = Path(__file__).resolve().parents[3]
FORKS = """
import os, sys
from dispatch.transports.kafka import KafkaSettings, KafkaTransport
from dispatch.transports.memory import MemoryTransport
from tests.dispatch.kafka.test_on_the_mock_broker import envelope
transport = KafkaTransport(KafkaSettings(servers=(sys.argv[1],), partitions=2), MemoryTransport(rebuilding=False))

def use(who, number):
    failed = transport.send([envelope(number)])
    print(f"{who}: {'not sent' if failed else 'sent'}, {transport._admin.lag()}", flush=True)

use("parent", 1)
for name in ("idle", "busy"):
    child = os.fork()
    if not child:
        if name == "busy":
            use("child", 2)
            transport.close()
        sys.exit(0)  # with all that the end of an interpreter takes down
    print(f"{name} child: {os.waitpid(child, 0)[1]}", flush=True)
"""


def settings(broker: MockBroker) -> KafkaSettings:
    return KafkaSettings(
        servers=(broker.servers,),
        partitions=2,
        publish_timeout_s=2.0,
        session_timeout_s=1.0,
        max_poll_interval_s=5.0,
        tuning={"fetch.wait.max.ms": 10},
    )


@pytest.fixture
def transport(broker: MockBroker) -> Iterator[KafkaTransport]:
    made = KafkaTransport(settings(broker), MemoryTransport(rebuilding=False))
    yield made
    made.close()


def envelope(number: int, session: str = "s") -> AgentTurnEnvelope:
    job = f"orch-{number:032x}"
    return AgentTurnEnvelope(
        job_id=job, session_id=session, kind="orchestrator_task", payload_ref=job, tenant="t1", enqueued_at=time.time()
    )


def received(transport: KafkaTransport, count: int) -> list[Message]:
    found: list[Message] = []

    def enough() -> bool:
        found.extend(transport.inbox.take(count - len(found), ""))
        return len(found) == count

    until(enough, 20, f"{count} deliveries come in")
    return found


def jobs(messages: list[Message]) -> list[str]:
    return sorted(message.envelope.job_id for message in messages if message.envelope)


def test_what_is_sent_comes_in_and_what_is_acked_does_not_come_again(
    broker: MockBroker, transport: KafkaTransport
) -> None:
    sent = [envelope(n, f"s-{n}") for n in range(10)]
    assert transport.send(sent) == frozenset()
    assert transport.depth() == 10
    ear = transport.listener()
    ear.wait(0)
    first = received(transport, 10)
    assert jobs(first) == [one.job_id for one in sent]
    transport.inbox.ack(first)
    ear.close()  # leaves the group, and commits on the way
    until(lambda: transport._admin.lag() == 0, 10, "nothing is left behind")
    other = KafkaTransport(settings(broker), MemoryTransport(rebuilding=False))
    try:
        other.listener().wait(0)
        assert other.send([envelope(99)]) == frozenset()
        assert jobs(received(other, 1)) == [envelope(99).job_id]
    finally:
        other.close()


def test_what_was_not_acked_comes_to_the_next_member(broker: MockBroker, transport: KafkaTransport) -> None:
    assert transport.send([envelope(1), envelope(2)]) == frozenset()
    ear = transport.listener()
    ear.wait(0)
    received(transport, 2)
    ear.close()
    other = KafkaTransport(settings(broker), MemoryTransport(rebuilding=False))
    try:
        other.listener().wait(0)
        assert jobs(received(other, 2)) == jobs_of(1, 2)
    finally:
        other.close()


def jobs_of(*numbers: int) -> list[str]:
    return [envelope(n).job_id for n in numbers]


def test_a_partition_that_moves_takes_its_open_deliveries_along_and_its_old_owner_commits_nothing_of_it(
    broker: MockBroker,
) -> None:
    patient = replace(settings(broker), session_timeout_s=3.0)  # nobody is thrown out for being slow
    old, new = (KafkaTransport(patient, MemoryTransport(rebuilding=False)) for _ in range(2))
    try:
        assert old.send([envelope(n, f"s-{n}") for n in range(20)]) == frozenset()
        old.listener().wait(0)
        first = received(old, 20)
        new.listener().wait(0)
        until(lambda: new.inbox.idle_s() == 0, 20, "a partition has moved")
        partition = new.inbox.take(1, "")[0].partition
        gone = [message for message in first if message.partition == partition]
        assert {message.partition for message in received(new, len(gone) - 1)} == {partition}
        old.inbox.ack(first)  # late: some of it is the other's now
        until(lambda: old._admin.lag() == len(gone), 20, "what stayed is committed")
        assert new.send([envelope(99)]) == frozenset()
        until(lambda: old._admin.lag() == len(gone) + 1, 10, "and nothing of what moved")
    finally:
        new.close()
        old.close()


def test_callers_who_send_at_once_each_get_their_own_word(transport: KafkaTransport) -> None:
    answers: list[frozenset[str]] = []

    def send(number: int) -> None:
        answers.append(transport.send([envelope(number)]))

    threads = [threading.Thread(target=send, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert answers == [frozenset()] * 16
    assert transport.depth() == 16


def test_a_refused_envelope_is_named_and_a_passing_fault_is_not(broker: MockBroker, transport: KafkaTransport) -> None:
    assert transport.send([envelope(1)]) == frozenset()
    broker.fail(PRODUCE, KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS)
    assert transport.send([envelope(2)]) == frozenset(), "the client tries again"
    broker.fail(PRODUCE, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert transport.send([envelope(3)]) == {envelope(3).job_id}


def test_a_broker_that_is_away_is_an_error_in_a_bounded_time_and_found_again(
    broker: MockBroker, transport: KafkaTransport
) -> None:
    assert transport.send([envelope(1)]) == frozenset()
    broker.down()
    began = time.monotonic()
    assert transport.send([envelope(2)]) == {envelope(2).job_id}
    assert time.monotonic() - began < 10
    with pytest.raises(QueueUnavailable):
        until(lambda: transport.depth() < 0, 10, "the lag cannot be read")
    broker.up()

    def sent() -> bool:
        return not transport.send([envelope(3)])

    until(sent, 30, "the broker is found again", every=0.2)


def test_a_topic_that_cannot_be_made_ready_is_refused_with_the_setting(broker: MockBroker) -> None:
    more = KafkaTransport(replace(settings(broker), partitions=3), MemoryTransport(rebuilding=False))
    with pytest.raises(TaskQueueUnavailable, match="KAFKA_BOOTSTRAP_SERVERS"):
        more.open()


def test_a_topic_with_more_partitions_than_configured_is_left_with_a_warning(
    broker: MockBroker, caplog: pytest.LogCaptureFixture
) -> None:
    KafkaTransport(replace(settings(broker), partitions=1), MemoryTransport(rebuilding=False)).open()
    assert "more partitions than AGENT_TURNS_PARTITIONS" in caplog.text


def test_what_was_posted_is_confirmed_before_the_end(transport: KafkaTransport) -> None:
    assert transport.send([envelope(1)]) == frozenset()
    posted = [envelope(n) for n in range(2, 500)]
    confirmed: list[str] = []
    transport.post(posted, confirmed.append)
    transport.close()
    assert sorted(confirmed) == [one.job_id for one in posted]
    assert transport.send([envelope(501)]) == frozenset(), "who goes on after it has a new client"
    assert transport.depth() == 500


def test_an_end_without_a_broker_comes_in_a_bounded_time(broker: MockBroker, caplog: pytest.LogCaptureFixture) -> None:
    patient = replace(settings(broker), publish_timeout_s=60.0)  # what was posted waits for its word to the end
    transport = KafkaTransport(patient, MemoryTransport(rebuilding=False))
    assert transport.send([envelope(1)]) == frozenset()
    ear = transport.listener()
    ear.wait(0)
    transport.inbox.ack(received(transport, 1))
    # posted while the broker is seen: once it is known to be away nothing is posted
    broker.fail(PRODUCE, *[KafkaError.NOT_ENOUGH_REPLICAS] * 50)
    transport.post([envelope(2)], lambda job_id: None)
    broker.down()
    began = time.monotonic()
    transport.close()
    assert time.monotonic() - began < 10
    assert "envelopes not confirmed at the end" in caplog.messages


def test_a_commit_without_an_answer_stops_no_polling(broker: MockBroker, caplog: pytest.LogCaptureFixture) -> None:
    transport = KafkaTransport(
        replace(settings(broker), max_poll_interval_s=1.5, group_protocol="consumer"), MemoryTransport(rebuilding=False)
    )
    try:
        assert transport.send([envelope(1), envelope(2)]) == frozenset()
        transport.listener().wait(0)
        first = received(transport, 2)
        broker.down()
        transport.inbox.ack(first)
        end = time.monotonic() + 3.0
        until(lambda: time.monotonic() > end, 5, "twice the poll interval is over")
        broker.up()
        until(lambda: transport._admin.lag() == 0, 20, "the commit arrives", every=0.2)
        assert [record for record in caplog.records if getattr(record, "error", "") == "_MAX_POLL_EXCEEDED"] == []
    finally:
        transport.close()


def test_a_forked_process_makes_clients_of_its_own_and_ends_well(broker: MockBroker) -> None:
    done = subprocess.run([sys.executable, "-c", FORKS, broker.servers], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["parent: sent, 1", "idle child: 0", "child: sent, 2", "busy child: 0"]
