"""Claims by a broker's deliveries: limits hold, what a limit holds is not lost, and each delivery gets its verdict."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import cast

import pytest

from dispatch.authority import WorkAuthority, deliveries
from dispatch.authority.publication import envelope_of
from dispatch.clock import store_now
from dispatch.envelope import AgentTurnEnvelope
from dispatch.models import ClaimGate, ClaimLimit, DeadEnvelope, WorkItem
from dispatch.ports import Lease, Message, RowStore, StepResult
from dispatch.states import ORCHESTRATOR_TASK, Verb
from dispatch.transports.kafka import KafkaSettings, KafkaTransport
from tests.dispatch.authority import world
from tests.dispatch.authority.test_limits import limit, sessions
from tests.support.mock_broker import MockBroker
from tests.support.processes import until

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


class Process:
    """A worker process as the authority sees it: an inbox of its own, filled by the test, over the store's rows."""

    def __init__(self, owner: str, servers: str) -> None:
        settings = KafkaSettings(servers=(servers,), partitions=2, publish_timeout_s=2.0)
        self.owner = owner
        self.transport = KafkaTransport(settings, cast(RowStore, world.transport()))
        self.transport.inbox.listening = True
        self.authority = WorkAuthority(transport=self.transport, max_depth=1000)
        self._offsets = count()

    def deliver(self, *items: WorkItem) -> None:
        """Their envelopes come in, in this order."""
        self.add(*(envelope(item.job_id, tenant=item.tenant, at=item.created_at.timestamp()) for item in items))

    def add(self, *values: AgentTurnEnvelope | bytes) -> None:
        self.transport.inbox.add([self._message(value) for value in values])

    def _message(self, value: AgentTurnEnvelope | bytes) -> Message:
        known, raw = (None, value) if isinstance(value, bytes) else (value, value.encode())
        return Message(envelope=known, raw=raw, partition=0, offset=next(self._offsets), assignment=1)

    def step(self, ended: list[Lease] | None = None, *, want: int, verb: str = Verb.SUCCEEDED) -> StepResult:
        settle = [world.settlement(lease, verb) for lease in ended or []]
        return self.authority.step(owner=self.owner, ttl_s=60, settle=settle, want=want, serves=world.SERVES, cursor="")

    def claim(self, want: int) -> list[Lease]:
        return list(self.step(want=want).claimed)

    def acked(self) -> int:
        """How many deliveries may be committed since the last look."""
        return len(self.transport.inbox.drain_acked())

    def has_some_in_hand(self) -> bool:
        return self.transport.inbox.idle_s() == 0


def envelope(job_id: str, *, tenant: str, at: float = 1.0) -> AgentTurnEnvelope:
    return envelope_of(
        job_id=job_id,
        session_id="s",
        kind=ORCHESTRATOR_TASK,
        agent_name="echo",
        tenant=tenant,
        priority=2,
        deadline=None,
        at=at,
    )


@pytest.fixture
def process(broker: MockBroker) -> Process:
    return Process("w1", broker.servers)


@pytest.mark.parametrize(("scope", "name"), [("agent", "echo"), ("tenant", "t1")])
def test_a_cap_holds_and_what_it_holds_runs_when_there_is_room_again(process: Process, scope: str, name: str) -> None:
    items = sessions(5)
    limit(scope, name, max_running=2)
    process.deliver(*items)
    running = process.claim(want=5)
    assert len(running) == 2
    assert process.claim(want=5) == []
    assert process.has_some_in_hand()
    seen = len(running)
    while running:
        running = list(process.step(running, want=5).claimed)
        assert len(running) <= 2
        seen += len(running)
    assert seen == process.acked() == 5, "each ran once, and its delivery is acked"
    assert not process.has_some_in_hand()
    world.check()


def test_a_rate_holds_and_what_it_holds_runs_when_the_bucket_is_full_again(process: Process) -> None:
    items = sessions(4)
    limit(rate_per_s=0.01, burst=2)
    process.deliver(*items)
    first = process.claim(want=4)
    assert len(first) == 2
    assert process.step(first, want=4).claimed == []
    assert (process.acked(), process.has_some_in_hand()) == (2, True)
    ClaimLimit.objects.update(tokens=2)
    assert len(process.claim(want=4)) == 2


def test_the_cap_is_one_for_all_processes(process: Process, broker: MockBroker) -> None:
    items = sessions(4)
    limit(max_running=2)
    other = Process("w2", broker.servers)
    process.deliver(*items[:2])
    other.deliver(*items[2:])
    running = process.claim(want=4)
    assert (len(running), other.claim(want=4)) == (2, [])
    process.step(running, want=0)
    assert {lease.job_id for lease in other.claim(want=4)} == {item.job_id for item in items[2:]}


def test_what_a_limit_holds_does_not_hide_the_turns_of_others_behind_it(process: Process) -> None:
    held = sessions(40)
    (other,) = sessions(1, agent_name="other")
    limit(max_running=1)
    process.deliver(*held, other)
    assert {lease.agent_name for lease in process.claim(want=2)} == {"echo", "other"}


def test_a_hand_full_of_what_a_limit_holds_does_not_keep_rows_from_running(process: Process) -> None:
    held = sessions(3)
    (unread,) = sessions(1, agent_name="other")
    limit(max_running=1)
    process.deliver(*held)
    process.claim(want=1)
    assert [lease.job_id for lease in process.claim(want=2)] == [unread.job_id]


def test_the_next_turn_of_a_session_waits_for_the_room_that_its_own_limit_leaves(process: Process) -> None:
    turns = [world.add("s") for _ in range(3)]
    limit(max_running=1)
    process.deliver(*turns)
    order: list[str] = []
    running = process.claim(want=2)
    while running:
        order += [lease.job_id for lease in running]
        running = list(process.step(running, want=2).claimed)
    assert order == [item.job_id for item in turns]
    assert process.acked() == 3, "two were parked behind the first"
    world.check()


def test_each_delivery_gets_its_verdict(process: Process) -> None:
    first, behind = world.add("s"), world.add("s")
    ended = world.run(world.add("ended"))
    foreign = world.add("foreign", agent_name="elsewhere")
    process.deliver(first, behind, ended, foreign, first)
    process.add(
        envelope("orch-" + "7" * 32, tenant="t1"), envelope(world.add("of-t1").job_id, tenant="t2"), b"no envelope"
    )
    (lease,) = process.claim(want=3)
    assert lease.job_id == first.job_id
    reasons = sorted(DeadEnvelope.objects.values_list("reason", flat=True))
    assert reasons == ["tenant_mismatch", "unknown", "unreadable"]
    assert process.claim(want=2) == [], "the second delivery of what runs starts nothing"
    assert process.acked() == 7
    assert not process.has_some_in_hand()
    assert world.counted()["skipped"] == 2
    (following,) = process.step([lease], want=1).claimed
    assert (following.job_id, process.acked()) == (behind.job_id, 1)


def test_a_head_that_was_freed_without_a_slot_for_it_is_sent_and_its_row_says_so(process: Process) -> None:
    first, second = world.add("s"), world.add("s")
    process.deliver(first)
    (lease,) = process.claim(want=1)
    process.step([lease], want=0)

    def is_marked() -> bool:
        process.authority.release()
        row = world.row_of(second)
        return row is not None and row.published_at is not None

    until(is_marked, 20, "the row says that it was sent")
    assert process.authority.republish() == 0


def test_a_head_that_went_back_to_the_queue_is_sent_again(process: Process) -> None:
    item = world.add("s")
    process.deliver(item)
    for _ in range(2):
        (lease,) = process.claim(want=1)
        process.step([lease], want=0, verb=Verb.HANDBACK)
        world.authority().release()
        process.deliver(item)
    (lease,) = process.claim(want=1)
    process.step([lease], want=0)
    assert (world.fresh(item).status, process.acked()) == ("succeeded", 3)


def test_what_cannot_be_stored_costs_no_delivery(process: Process) -> None:
    items = sessions(3)
    process.deliver(items[0])
    (bad,) = process.claim(want=1)
    process.deliver(*items[1:])
    settlement = world.settlement(bad, result={"text": "\ud800"})
    result = process.authority.step(owner="w1", ttl_s=60, settle=[settlement], want=5, serves=world.SERVES, cursor="")
    assert {lease.job_id for lease in result.claimed} == {item.job_id for item in items[1:]}
    process.step(list(result.claimed), want=0)
    assert process.acked() == 3
    world.check()


@pytest.mark.parametrize(
    ("scope", "name"), [("fleet", ""), ("agent", "echo"), ("kind", ORCHESTRATOR_TASK), ("tenant", "t1")]
)
def test_a_delivery_behind_a_shut_gate_is_parked(process: Process, scope: str, name: str) -> None:
    item = world.add("s")
    gate = ClaimGate.objects.create(scope=scope, name=name, reason="x", set_by="ops", set_at=store_now())
    process.deliver(item)
    assert process.claim(want=1) == []
    assert (process.acked(), process.has_some_in_hand()) == (1, False)
    gate.delete()
    process.deliver(item)
    assert len(process.claim(want=1)) == 1


def test_what_was_acked_while_a_pause_held_it_does_not_wait_for_a_quiet_moment(
    broker: MockBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "BUSY_LOOK_S", 0.0)  # each step is one in which the rows are due
    process = Process("w1", broker.servers)
    held = world.add("held", tenant="t2")
    gate = ClaimGate.objects.create(scope="tenant", name="t2", reason="x", set_by="ops", set_at=store_now())
    process.deliver(held)
    assert process.claim(want=1) == []
    gate.delete()
    busy = sessions(20)
    process.deliver(*busy)
    running = process.claim(want=2)
    assert held.job_id in [lease.job_id for lease in running], "though the hand is full"
    ran = [lease.job_id for lease in running]
    while running:
        running = list(process.step(running, want=2).claimed)
        ran += [lease.job_id for lease in running]
    assert sorted(ran) == sorted(item.job_id for item in [held, *busy]), "each once"
    assert process.claim(want=2) == []
    assert (process.acked(), process.has_some_in_hand()) == (21, False), "what was claimed from its row is acked too"
    world.check()


def test_a_turn_that_another_caller_was_coalesced_into_is_not_withdrawn(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker takes its time, and then refuses: meanwhile somebody else got the handle."""

    def refused(envelopes: Sequence[AgentTurnEnvelope]) -> frozenset[str]:
        (answer,) = world.authority().submit([world.new(task="newer", on_busy="coalesce")])
        assert answer.coalesced
        return frozenset(one.job_id for one in envelopes)

    monkeypatch.setattr(process.transport, "send", refused)
    (answer,) = process.authority.submit([world.new(task="first")])
    assert answer.error is None
    assert WorkItem.objects.get(job_id=answer.job_id).task == "newer"
    world.check()
