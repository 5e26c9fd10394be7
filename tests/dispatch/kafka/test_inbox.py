"""What a process has in hand: who is offered first, and what becomes of a delivery whose lease is gone."""

from __future__ import annotations

import time
from typing import Any

from dispatch.envelope import AgentTurnEnvelope
from dispatch.ports import Message
from dispatch.transports.kafka.inbox import SOON_S, KafkaInbox


def message(number: int, *, tenant: str = "t1", at: float = 0.0, partition: int = 0, **more: Any) -> Message:
    job = f"orch-{number:032x}"
    envelope = AgentTurnEnvelope(
        job_id=job,
        session_id="s",
        kind="orchestrator_task",
        payload_ref=job,
        tenant=tenant,
        enqueued_at=1_800_000_000.0 + at,
        **more,
    )
    return Message(envelope=envelope, raw=envelope.encode(), partition=partition, offset=number, assignment=1)


def broken() -> Message:
    return Message(envelope=None, raw=b"?", partition=0, offset=99, assignment=1)


def numbers(messages: list[Message]) -> list[int]:
    return [one.offset for one in messages]


def test_tenants_are_offered_in_turn_and_the_best_rank_first_in_each() -> None:
    inbox = KafkaInbox()
    inbox.add([message(1), message(2, at=-5), message(3, priority="critical"), message(4, tenant="t2"), broken()])
    assert numbers(inbox.take(4, "t1")) == [99, 4, 3, 2]
    assert numbers(inbox.take(4, "t1")) == [1]
    assert inbox.take(4, "") == []


def test_what_is_put_back_keeps_its_rank() -> None:
    inbox = KafkaInbox()
    inbox.add([message(1), message(2, at=1)])
    inbox.put_back(inbox.take(2, ""))
    assert numbers(inbox.take(1, "")) == [1]


def test_the_deliveries_of_a_partition_that_went_away_are_forgotten() -> None:
    inbox = KafkaInbox()
    inbox.add([message(1), message(2, partition=1)])
    inbox.forget([1])
    assert numbers(inbox.take(9, "")) == [1]


def test_a_settled_turn_acks_its_delivery_and_a_lost_one_is_judged_anew() -> None:
    inbox = KafkaInbox()
    first, second = message(1), message(2)
    inbox.hold((1, 1, "me"), first, ttl_s=60)
    inbox.hold((2, 1, "me"), second, ttl_s=60)
    inbox.settled([(1, 1, "me"), (7, 1, "me")])
    inbox.lost([(2, 1, "me")])
    assert inbox.drain_acked() == [first]
    assert inbox.drain_acked() == []
    assert inbox.take(9, "") == [second]


def test_a_lease_that_was_not_renewed_in_its_time_gives_its_delivery_back() -> None:
    inbox = KafkaInbox()
    kept, lapsed = message(1), message(2)
    inbox.hold((1, 1, "me"), kept, ttl_s=0.01)
    inbox.hold((2, 1, "me"), lapsed, ttl_s=0.01)
    inbox.renewed([(1, 1, "me")], ttl_s=60)
    time.sleep(0.02)
    assert inbox.take(9, "") == [lapsed]


def test_a_full_hand_says_so_and_has_room_again_at_half() -> None:
    inbox = KafkaInbox(most=4)
    inbox.add([message(n) for n in range(4)])
    assert (inbox.is_full, inbox.has_room) == (True, False)
    inbox.take(2, "")
    assert (inbox.is_full, inbox.has_room) == (False, True)


def test_news_that_came_before_the_wait_are_not_missed() -> None:
    inbox = KafkaInbox()
    seen = inbox.news
    inbox.add([message(1)])
    assert inbox.wait(seen, 5)
    assert not inbox.wait(inbox.news, 0.01)


def test_what_is_to_be_offered_again_soon_wakes_who_waits_each_time_a_little_later() -> None:
    inbox = KafkaInbox()
    inbox.add([message(1)])
    took = []
    for _ in range(4):
        seen, began = inbox.news, time.monotonic()
        inbox.put_back(inbox.take(1, ""), soon=True)
        assert inbox.wait(seen, 20)
        took.append(time.monotonic() - began)
    assert took[3] >= 8 * SOON_S[0]
    assert not inbox.wait(inbox.news, 0.01), "once each"
