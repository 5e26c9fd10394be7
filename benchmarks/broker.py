"""What the broker does without turns: envelopes that are published, and messages that a plain consumer commits."""

from __future__ import annotations

import os
import threading
import time
import uuid
from argparse import Namespace

from confluent_kafka import Consumer, Producer

from dispatch.envelope import AgentTurnEnvelope
from dispatch.ports import Envelopes
from dispatch.wiring import transport

Numbers = dict[str, float]
TOPIC = "agent_turns"
CALLERS = 8


def opened() -> Envelopes:
    envelopes = transport().envelopes
    assert envelopes is not None
    envelopes.open()
    return envelopes


def envelope(session: int) -> AgentTurnEnvelope:
    job = f"orch-{uuid.uuid4().hex}"
    return AgentTurnEnvelope(
        job_id=job,
        session_id=f"s-{session}",
        kind="orchestrator_task",
        payload_ref=job,
        tenant="bench",
        enqueued_at=time.time(),
    )


def publish(args: Namespace) -> Numbers:
    """Envelopes a second of eight callers at once; each waits for the broker's word on its own before it goes on.

    `one_caller_s`: of one caller alone; `list_s`: of one that gives 500 at a time.
    """
    envelopes = opened()
    ready = [envelope(number % args.sessions) for number in range(args.jobs)]

    def send(mine: list[AgentTurnEnvelope], at_once: int = 1) -> None:
        for first in range(0, len(mine), at_once):
            assert not envelopes.send(mine[first : first + at_once])

    def rate(shares: list[list[AgentTurnEnvelope]], at_once: int = 1) -> float:
        threads = [threading.Thread(target=send, args=(share, at_once)) for share in shares]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(map(len, shares)) / (time.monotonic() - began)

    send(ready[:1])  # the first message of a client asks for more than itself
    return {
        "value": rate([ready[number::CALLERS] for number in range(CALLERS)]),
        "one_caller_s": rate([ready[: max(1, args.jobs // CALLERS)]]),
        "list_s": rate([ready], at_once=500),
    }


def bare(args: Namespace) -> Numbers:
    """Messages a second of a consumer that only commits their offsets: the limit of what Kafka brings."""
    opened()
    sender = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"], "acks": "all"})
    for number in range(args.jobs):
        sender.produce(TOPIC, key=f"session:{number % args.sessions}", value=b"x" * 300)
        sender.poll(0)
    sender.flush(60)
    member = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA_BOOTSTRAP_SERVERS"],
            "group.id": "bare",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    member.subscribe([TOPIC])
    seen, skipped, first = 0, 0, 0.0
    while seen < args.jobs:
        messages = member.consume(500, 0.05)
        if messages and not first:
            first, skipped = time.monotonic(), len(messages)
        seen += len(messages)
        if messages:
            member.commit(asynchronous=True)
    took = time.monotonic() - first
    member.close()
    return {"value": (seen - skipped) / took, "seconds": took}
