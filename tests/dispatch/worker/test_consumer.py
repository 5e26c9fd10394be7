"""The claim loop over the real authority and store."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from django.db import connections

from dispatch import states, wiring
from dispatch.agents import TurnContext
from dispatch.agents.registry import RegisteredAgent, Registry
from dispatch.models import DispatchWorker, WorkItem
from dispatch.ports import Lease, RenewResult, Serves, Settlement, StepResult
from dispatch.worker import leases
from dispatch.worker.consumer import Consumer
from dispatch.worker.leases import LeaseKeeper
from dispatch.worker.runners import Runners
from dispatch.worker.start import consumer_settings
from dispatch.worker_registry import DatabaseWorkerRegistry
from tests.dispatch.agents.turn_store import MemoryTurnStore
from tests.dispatch.authority import world
from tests.dispatch.worker.parts import WAIT_S, Heard
from tests.support.processes import until

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LOOK_S", 0.05)


class Between:
    """The real authority behind a door that a test can shut. Threads keep no connection."""

    def __init__(self) -> None:
        self.shut = False
        self.settled: list[Settlement] = []

    def step(self, *, settle: Sequence[Settlement], **rest: Any) -> StepResult:
        if self.shut:
            raise ConnectionError("shut")
        self.settled += settle
        return wiring.authority().step(settle=settle, **rest)

    def claim(self, job_id: str, *, owner: str, ttl_s: float, serves: Serves) -> Lease | str:
        return wiring.authority().claim(job_id, owner=owner, ttl_s=ttl_s, serves=serves)

    def renew(self, *, ttl_s: float, leases: Sequence[tuple[int, int, str]]) -> RenewResult:
        return wiring.authority().renew(ttl_s=ttl_s, leases=leases)

    def cancels(self, *, leases: Sequence[tuple[int, int, str]]) -> RenewResult:
        return wiring.authority().cancels(leases=leases)

    def stopped(self, *, lease: Lease) -> None:
        wiring.authority().stopped(lease=lease)

    def recover(self) -> None:
        connections.close_all()

    def release(self) -> None:
        connections.close_all()


@dataclass
class Working:
    """A consumer at work, and what it said."""

    consumer: Consumer
    authority: Between
    events: Heard = field(default_factory=Heard)


@contextmanager
def working(fn: Any, *, capacity: int = 1, stop_grace_s: float = 10.0, **options: Any) -> Iterator[Working]:
    """Run a consumer whose agent `echo` is `fn`; it hands back what still runs at the end."""
    agents = Registry()
    is_async = asyncio.iscoroutinefunction(fn)
    agents.add(RegisteredAgent(name=world.AGENT, fn=fn, is_async=is_async, stop_grace_s=stop_grace_s))
    authority, events, store = Between(), Heard(), MemoryTurnStore()
    serves = replace(world.SERVES, agents=(world.AGENT, "other"))
    (settings,) = consumer_settings(
        1, host_label="test", capacity=capacity, serves=serves, ttl_s=60, heartbeat_s=30, **options
    )
    keeper = LeaseKeeper(authority=authority, events=events, ttl_s=60, renew_s=20, notify=lambda: consumer.nudge())
    consumer = Consumer(
        settings,
        authority=authority,
        agents=agents,
        store=store,
        registry=DatabaseWorkerRegistry(queue_backend="test"),
        keeper=keeper,
        runners=Runners(store),
        events=events,
        exited=lambda: None,
    )
    keeper.start()
    consumer.start()
    try:
        yield Working(consumer, authority, events)
    finally:
        consumer.hand_back()
        assert consumer.done.wait(WAIT_S)
        consumer.thread.join(WAIT_S)
        keeper.stop()


def counting(turn: TurnContext) -> int:
    turn.state["n"] = int(turn.state.get("n", 0)) + 1
    return int(turn.state["n"])


class Gate:
    """An agent that waits until the test opens it."""

    def __init__(self, *, listens: bool = True) -> None:
        self.begun, self.open, self.listens = threading.Semaphore(0), threading.Event(), listens

    def __call__(self, turn: TurnContext) -> str:
        self.begun.release()
        while not self.open.wait(0.01):
            if self.listens:
                turn.raise_if_cancelled()
        return "through"

    def wait_begun(self) -> None:
        assert self.begun.acquire(timeout=WAIT_S)


def ended(*items: WorkItem) -> list[str]:
    """Their statuses, once none of them is unfinished."""
    pks = [item.pk for item in items]
    until(lambda: not WorkItem.objects.filter(pk__in=pks, finished_at=None).exists(), WAIT_S, "all have ended")
    return [world.fresh(item).status for item in items]


def test_turns_are_claimed_run_and_settled_in_order_with_the_state_that_the_last_one_left() -> None:
    items = [world.add("s") for _ in range(4)]
    with working(counting, capacity=3) as at:
        assert ended(*items) == [states.SUCCEEDED] * 4
    assert [world.outcome_of(item).result for item in items] == [1, 2, 3, 4]
    assert at.events.of(items[0].job_id) == ["claimed", "ended Succeeded", "settled succeeded"]
    assert not DispatchWorker.objects.exists(), "it leaves the registry"
    world.check()


def test_once_claims_up_to_its_capacity_one_time() -> None:
    items = [world.add(f"s-{number}") for number in range(3)]
    with working(counting, capacity=2, once=True) as at:
        assert at.consumer.done.wait(WAIT_S)
    assert [world.fresh(item).status for item in items] == [states.SUCCEEDED] * 2 + [states.READY]


def test_drain_ends_when_nothing_is_claimable_and_nothing_runs() -> None:
    items = [world.add("s") for _ in range(5)]
    with working(counting, drain=True) as at:
        assert at.consumer.done.wait(WAIT_S)
    assert {world.fresh(item).status for item in items} == {states.SUCCEEDED}


def test_after_stop_claiming_what_runs_finishes_and_nothing_new_starts() -> None:
    gate = Gate()
    running, waiting = world.add("a"), world.add("b")
    with working(gate) as at:
        gate.wait_begun()
        at.consumer.stop_claiming()
        gate.open.set()
        assert at.consumer.done.wait(WAIT_S)
    assert [world.fresh(item).status for item in (running, waiting)] == [states.SUCCEEDED, states.READY]


@pytest.mark.parametrize("listens", [True, False])
def test_hand_back_uses_no_attempt_whether_the_agent_listens_or_not(listens: bool) -> None:
    gate, item = Gate(listens=listens), world.add("s")
    with working(gate) as at:
        gate.wait_begun()
        began = time.monotonic()
        at.consumer.hand_back()
        assert at.consumer.done.wait(WAIT_S)
        assert time.monotonic() - began < WAIT_S / 2
        gate.open.set()
    item = world.fresh(item)
    assert (item.status, item.attempt, item.epoch, item.owner) == (states.READY, 0, 1, None)
    assert world.events(item)[-1] == "handback"
    world.check()


def test_an_async_turn_is_handed_back_by_cancelling_it() -> None:
    begun = threading.Event()

    async def agent(turn: TurnContext) -> None:
        begun.set()
        await asyncio.sleep(WAIT_S)

    item = world.add("s")
    with working(agent) as at:
        assert begun.wait(WAIT_S)
        at.consumer.hand_back()
        assert at.consumer.done.wait(WAIT_S)
    assert (world.fresh(item).status, world.fresh(item).attempt) == (states.READY, 0)


def test_a_run_that_does_not_stop_is_settled_without_it_holds_its_slot_and_is_noted_when_it_ends() -> None:
    gate = Gate(listens=False)
    item, after = world.add("s"), world.add("s")
    with working(gate, stop_grace_s=0.1) as at:
        gate.wait_begun()
        world.authority().transitions.cancel([item.pk], code="cancelled")
        assert ended(item) == [states.CANCELLED]
        assert world.fresh(item).stopped_at is None
        until(lambda: DispatchWorker.objects.get().stuck == 1, WAIT_S, "the registry shows it as stuck")
        assert [run["stuck"] for run in DispatchWorker.objects.get().active_sessions] == [True]
        assert world.fresh(after).status == states.READY
        assert "stuck" in at.events.of(item.job_id)
        gate.open.set()
        assert ended(after) == [states.SUCCEEDED]
        until(lambda: world.fresh(item).stopped_at, WAIT_S, "its real end is noted")
    assert world.fresh(item).status == states.CANCELLED
    world.check()


def test_what_ended_while_the_store_was_away_is_written_once_when_it_is_back() -> None:
    gate, item = Gate(), world.add("s")
    with working(gate) as at:
        gate.wait_begun()
        at.authority.shut = True
        gate.open.set()
        until(lambda: at.consumer.blind_s > 0.2, WAIT_S, "the consumer is blind")
        assert world.fresh(item).status == states.RUNNING
        at.authority.shut = False
        assert ended(item) == [states.SUCCEEDED]
        until(lambda: at.consumer.blind_s == 0, WAIT_S, "it sees again")
    assert len(at.authority.settled) == 1
    assert at.events.of(item.job_id).count("settled succeeded") == 1
    assert ("blind", "ConnectionError") in at.events.said


def test_a_run_whose_lease_went_to_another_writes_nothing() -> None:
    gate, item = Gate(listens=False), world.add("s", max_attempts=5)
    with working(gate) as at:
        gate.wait_begun()
        world.rescue(item)
        taken = world.claim_item(item, owner="somebody else")
        until(lambda: "lease lost" in at.events.of(item.job_id), WAIT_S, "it learns that its lease is lost")
        gate.open.set()
        until(lambda: "refused" in at.events.of(item.job_id), WAIT_S, "its commit is refused")
        assert world.fresh(item).owner == "somebody else"
        world.end(taken, result="theirs")
    assert world.outcome_of(item).result == "theirs"
    world.check()


def test_a_turn_whose_agent_is_gone_is_handed_back_for_another_worker() -> None:
    item = world.add("s", agent_name="other")
    with working(counting):
        until(lambda: "handback" in world.events(item), WAIT_S, "it is handed back")
    assert world.fresh(item).attempt == 0


def test_an_operators_drain_is_seen_at_the_next_heartbeat() -> None:
    gate, item = Gate(), world.add("s")
    with working(gate) as at:
        gate.wait_begun()
        until(lambda: DispatchWorker.objects.exclude(active_sessions=[]).exists(), WAIT_S, "it shows what it runs")
        (row,) = DispatchWorker.objects.all()
        assert (row.capacity, row.active_sessions[0]["job_id"]) == (1, item.job_id)
        DispatchWorker.objects.update(draining=True)
        gate.open.set()
        assert at.consumer.done.wait(WAIT_S)
    assert world.fresh(item).status == states.SUCCEEDED
    assert not DispatchWorker.objects.exists()
