"""Who has lost a turn writes nothing of it any more, whoever has it now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta, tzinfo
from typing import Any, Self

import pytest
from django.db import connection

from dispatch import states
from dispatch.authority.leases import DatabaseTurnStore
from dispatch.clock import store_now
from dispatch.errors import LeaseLost
from dispatch.models import Outcome, OutputChunk, StepResult, WorkItem
from dispatch.ports import Lease
from dispatch.states import Verb
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


def _no_child(lease: Lease, key: str, body: dict[str, Any]) -> str:
    raise AssertionError("no child is dispatched here")


STORE = DatabaseTurnStore(ttl_s=60, dispatch_child=_no_child)
WRITES: dict[str, Callable[[Lease], object]] = {
    "emit": lambda lease: STORE.emit(lease, "text", {"text": "late"}),
    "checkpoint": lambda lease: STORE.checkpoint(lease, "late"),
    "step_load": lambda lease: STORE.step_load(lease, "fetch"),
    "step_save": lambda lease: STORE.step_save(lease, "fetch", "late"),
}
VERBS = (Verb.SUCCEEDED, Verb.FAILED, Verb.RETRY, Verb.SNOOZE, Verb.HANDBACK, Verb.CANCELLED, Verb.DEAD_LETTER)


def _is_shut_out(lease: Lease) -> None:
    """The holder of this lease can do nothing."""
    item = world.fresh(WorkItem(pk=lease.item_id))
    before = WorkItem.objects.filter(pk=lease.item_id).values().get()
    for write in WRITES.values():
        with pytest.raises(LeaseLost):
            write(lease)
    assert list(world.authority().renew(ttl_s=600, leases=[lease.fence]).lost) == [lease.item_id]
    for verb in VERBS:
        result = world.end(lease, verb, result="late", state={"late": True}, code="agent_error")
        assert (list(result.settled), len(result.lost)) == ([], 1)
    suspended = world.end(lease, Verb.SUSPEND, code="input", question="late?")
    assert len(suspended.lost) == 1
    assert WorkItem.objects.filter(pk=lease.item_id).values().get() == before
    assert world.session_of(item).state != {"late": True}
    assert not OutputChunk.objects.filter(work_item=item, epoch=lease.epoch).exists()
    assert not StepResult.objects.filter(work_item=item).exists()
    world.check()


def test_the_epoch_outgrows_every_life_of_a_job_and_each_old_holder_is_refused() -> None:
    item = world.add()
    held = [world.claim_item(item, "w1")]
    world.rescue(held[0])
    held.append(world.claim_item(item, "w1"))
    world.end(held[1], Verb.HANDBACK)
    world.authority().transitions.cancel([item.pk], code="cancelled")
    world.authority().transitions.retry(item.pk)
    held.append(world.claim_item(item, "w1"))
    assert held[2].epoch > held[1].epoch > held[0].epoch
    for old in held[:2]:
        _is_shut_out(old)
    assert world.end(held[2], result="mine").settled[0].status == states.SUCCEEDED
    for old in held:
        _is_shut_out(old)


def test_a_consumer_that_claims_again_what_it_lost_is_another_holder_than_its_older_self() -> None:
    item = world.add()
    stalled = world.claim_item(item, "w1")
    world.rescue(stalled)
    current = world.claim_item(item, "w1")
    until = world.fresh(item).lease_expires_at
    _is_shut_out(stalled)
    assert world.fresh(item).lease_expires_at == until
    assert world.authority().renew(ttl_s=60, leases=[current.fence]).lost == []
    world.end(current, result="mine")
    assert world.outcome_of(item).result == "mine"


def test_a_retried_job_runs_beside_its_old_worker_that_can_write_nothing() -> None:
    item = world.add(max_attempts=1)
    frozen = world.claim_item(item, "w1")
    world.rescue(frozen)
    assert world.fresh(item).status == states.DEAD_LETTER
    world.authority().transitions.retry(item.pk)
    _is_shut_out(frozen)
    current = world.claim_item(item, "w2")
    _is_shut_out(frozen)
    world.end(current, result="mine")
    assert world.outcome_of(item).result == "mine"


def test_the_lease_is_judged_by_the_time_written_on_it_and_not_by_the_settings_of_who_looks() -> None:
    short, long = world.add("a"), world.add("b")
    world.claim_item(short, "w1", ttl_s=6)
    world.claim_item(long, "w2", ttl_s=60)
    now = store_now()
    for item, ttl in ((short, 6), (long, 60)):
        until = world.fresh(item).lease_expires_at
        assert until is not None
        assert now + timedelta(seconds=ttl - 5) < until <= now + timedelta(seconds=ttl)
    assert world.authority().transitions.rescue() == 0
    world.lapse(short)
    assert world.authority().transitions.rescue() == 1
    assert (world.fresh(short).status, world.fresh(long).status) == (states.READY, states.RUNNING)


class _AnyMoment(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, datetime)


class Ahead(datetime, metaclass=_AnyMoment):
    """The clock of a host that goes five minutes fast."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        return super().now(tz) + timedelta(minutes=5)


def test_a_host_with_a_clock_that_is_wrong_takes_nobodys_live_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor == "sqlite":
        return  # one host has one clock

    item = world.add()
    world.claim_item(item, "w1", ttl_s=60)
    for name in ("dispatch.clock", "dispatch.transports.postgres", "dispatch.authority.leases"):
        monkeypatch.setattr(f"{name}.datetime", Ahead)
    assert world.authority().transitions.rescue() == 0
    assert world.claim("w2") == []
    assert world.fresh(item).owner == "w1"


def test_the_rescue_tick_leaves_leases_alone_that_are_renewed() -> None:
    lease = world.claim_item(world.add())
    before = WorkItem.objects.filter(pk=lease.item_id).values("status", "epoch", "owner", "attempt").get()
    for _ in range(20):
        assert world.authority().transitions.rescue() == 0
        assert world.authority().transitions.rescue_item(lease.item_id) is False
        assert world.authority().renew(ttl_s=6, leases=[lease.fence]).lost == []
    assert WorkItem.objects.filter(pk=lease.item_id).values("status", "epoch", "owner", "attempt").get() == before
    assert world.events(WorkItem(pk=lease.item_id)) == ["submitted", "running"]


def test_a_renewal_in_time_saves_a_lease_that_has_lapsed_unseen() -> None:
    lease = world.claim_item(world.add())
    world.lapse(lease)
    assert world.authority().renew(ttl_s=60, leases=[lease.fence]).lost == []
    assert world.authority().transitions.rescue() == 0
    assert world.end(lease).settled


def test_many_leases_are_renewed_together_and_the_lost_ones_are_named() -> None:
    leases = [world.claim_item(world.add(f"s{n}")) for n in range(6)]
    world.rescue(*leases[:2])
    world.authority().transitions.cancel([leases[5].item_id], code="cancelled")
    answer = world.authority().renew(ttl_s=300, leases=[lease.fence for lease in leases])
    assert sorted(answer.lost) == sorted(lease.item_id for lease in leases[:2])
    assert dict(answer.cancelled) == {leases[5].item_id: "cancelled"}
    late = store_now() + timedelta(seconds=200)
    assert WorkItem.objects.filter(lease_expires_at__gt=late).count() == 4


def test_a_stop_that_was_seen_has_its_time_and_a_run_that_ended_late_too() -> None:
    lease = world.claim_item(world.add())
    item = WorkItem(pk=lease.item_id)
    world.authority().transitions.cancel([lease.item_id], code="cancelled", reason="enough")
    assert world.fresh(item).cancel_seen_at is None
    world.authority().cancels(leases=[lease.fence])
    seen = world.fresh(item).cancel_seen_at
    assert seen is not None
    world.authority().cancels(leases=[lease.fence])
    assert world.fresh(item).cancel_seen_at == seen
    world.step([world.settlement(lease, Verb.CANCELLED, code="cancelled", ended=False)])
    assert world.fresh(item).stopped_at is None
    world.authority().stopped(lease=lease)
    assert world.fresh(item).stopped_at is not None


@pytest.mark.parametrize("verb", [Verb.CANCELLED, Verb.SUCCEEDED, Verb.FAILED, Verb.RETRY, Verb.SUSPEND])
def test_a_run_that_ends_after_its_cancel_has_stopped_in_the_commit_that_ends_the_job(verb: str) -> None:
    lease = world.claim_item(world.add())
    world.authority().transitions.cancel([lease.item_id], code="cancelled")
    more = {"question": "which?", "code": "input"} if verb == Verb.SUSPEND else {}
    world.step([world.settlement(lease, verb, **more)])
    ended = world.fresh(WorkItem(pk=lease.item_id))
    assert ended.finished_at is not None
    assert ended.stopped_at == pytest.approx(ended.finished_at, abs=timedelta(seconds=1))


def test_a_run_at_its_deadline_has_stopped_with_its_end_and_one_that_ends_by_itself_was_not_stopped() -> None:
    expired, plain = world.claim_item(world.add("a")), world.claim_item(world.add("b"))
    world.step([world.settlement(expired, Verb.CANCELLED, code="expired"), world.settlement(plain)])
    assert world.fresh(WorkItem(pk=expired.item_id)).stopped_at is not None
    assert world.fresh(WorkItem(pk=plain.item_id)).stopped_at is None


def test_the_end_of_a_run_that_was_settled_without_it_says_nothing_of_a_turn_that_goes_on() -> None:
    lease = world.claim_item(world.add())
    world.step([world.settlement(lease, Verb.RETRY, delay_s=60.0, code="timeout", ended=False)])
    world.authority().stopped(lease=lease)
    assert world.fresh(WorkItem(pk=lease.item_id)).stopped_at is None


def test_no_output_of_an_old_holder_is_stored_after_the_takeover_has_committed() -> None:
    """Emitters race with takeovers, but for one that comes after each; what was stored is compared with the epoch that
    was current when it was stored.
    """
    rounds = 250 if connection.vendor == "sqlite" else 50
    emitters = 4
    stored = lost = 0
    for number in range(rounds):
        item = world.add(f"s{number}", max_attempts=9)
        old = world.claim_item(item, "w1")
        world.lapse(old)
        start, taken = threading.Barrier(emitters + 1), threading.Event()
        after: list[str] = []

        def emit(
            comes_late: bool,
            lease: Lease = old,
            start: threading.Barrier = start,
            taken: threading.Event = taken,
            after: list[str] = after,
        ) -> None:
            try:
                start.wait(20)
                if comes_late:
                    assert taken.wait(20)
                before = taken.is_set()
                STORE.emit(lease, "text", {"text": "x"})
                after.append("stored after the takeover" if before else "stored")
            except LeaseLost:
                after.append("lost")
            finally:
                connection.close()

        threads = [threading.Thread(target=emit, args=(place == 0,)) for place in range(emitters)]
        for thread in threads:
            thread.start()
        start.wait(20)
        world.authority().transitions.rescue_item(item.pk)
        current = world.claim_item(item, "w2")
        taken.set()
        mark = OutputChunk.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
        for thread in threads:
            thread.join(30)
        assert len(after) == emitters
        assert "stored after the takeover" not in after
        late = OutputChunk.objects.filter(work_item=item, epoch=old.epoch, pk__gt=mark)
        assert not late.exists(), "a chunk of the old holder was stored after the new claim had committed"
        stored += after.count("stored")
        lost += after.count("lost")
        world.end(current)
    assert stored + lost == rounds * emitters
    assert lost >= rounds, "who comes after the takeover has lost"


def test_two_consumers_that_settle_one_turn_write_one_end() -> None:
    for number in range(20):
        item = world.add(f"s{number}")
        old = world.claim_item(item, "w1")
        world.rescue(old)
        current = world.claim_item(item, "w2")
        start = threading.Barrier(2)
        settled: list[str] = []

        def settle(lease: Lease, start: threading.Barrier = start, settled: list[str] = settled) -> None:
            try:
                start.wait(20)
                if world.end(lease, result=lease.owner).settled:
                    settled.append(lease.owner)
            finally:
                connection.close()

        threads = [threading.Thread(target=settle, args=(lease,)) for lease in (old, current)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert settled == ["w2"]
        assert [outcome.result for outcome in Outcome.objects.filter(work_item=item)] == ["w2"]
    world.check()
