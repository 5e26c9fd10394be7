"""The lease keeper: renews in one statement, tells runs to stop, gives up what it could not renew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from dispatch.agents.runner import Stop
from dispatch.worker import leases
from dispatch.worker.leases import LeaseKeeper
from tests.dispatch.agents.turn_store import lease
from tests.dispatch.worker.parts import WAIT_S, ByHand, Heard, slot
from tests.support.processes import until


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "LOOK_S", 0.02)


@contextmanager
def keeping(
    authority: ByHand,
    events: Heard,
    *,
    ttl_s: float = 60,
    renew_s: float = 20,
    notify: Callable[[], None] = lambda: None,
) -> Iterator[LeaseKeeper]:
    keeper = LeaseKeeper(authority=authority, events=events, ttl_s=ttl_s, renew_s=renew_s, notify=notify)
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop()


def test_all_leases_are_renewed_in_one_statement_each_time() -> None:
    authority = ByHand()
    slots = [slot(of=lease(item_id=number)) for number in range(5)]
    with keeping(authority, Heard(), renew_s=0.05) as keeper:
        for one in slots:
            keeper.add(one)
        until(lambda: len(authority.renewed) >= 3, WAIT_S, "three renewals")
    assert sorted(authority.renewed[-1]) == [one.lease.fence for one in slots]
    assert all(one.run.stopped is None for one in slots)


@pytest.mark.parametrize("why", [Stop.TIMEOUT, Stop.BUDGET])
def test_a_run_is_told_when_a_limit_of_its_own_is_over_and_not_when_it_was_replaced(why: str) -> None:
    with keeping(ByHand(), Heard()) as keeper:
        limited, free = slot(of=lease(item_id=1)), slot(of=lease(item_id=2))
        free.run.context.limits = {why: time.monotonic() + 0.2}
        limited.run.context.limits = {why: time.monotonic() + 0.4}
        free.run.context.limits = {}
        for one in (limited, free):
            keeper.add(one)
        until(lambda: limited.run.stopped, WAIT_S, "it is told")
        assert (limited.run.stopped, free.run.stopped) == (why, None)


def test_nothing_is_asked_while_nothing_runs() -> None:
    authority = ByHand()
    with keeping(authority, Heard(), renew_s=0.02) as keeper:
        held = slot()
        keeper.add(held)
        until(lambda: authority.renewed, WAIT_S, "a renewal")
        keeper.remove(held)
        before = len(authority.renewed) + len(authority.looked)
        again = slot(of=lease(item_id=8))
        keeper.add(again)
        until(lambda: len(authority.renewed) + len(authority.looked) > before + 1, WAIT_S, "another")
        assert authority.renewed[-1] == [again.lease.fence]


def test_a_run_hears_until_when_its_lease_is_held_at_once_and_at_each_renewal() -> None:
    authority, until_when = ByHand(), list[float]()
    held = slot()
    with keeping(authority, Heard(), ttl_s=60, renew_s=0.05) as keeper:
        keeper.add(held)
        held.run.context.on_renewal(until_when.append)
        assert until_when[0] >= held.claimed_at + 60
        until(lambda: len(until_when) > 2, WAIT_S, "renewals")
        assert until_when == sorted(until_when)
        authority.lost = {held.lease.item_id}
        until(lambda: held.run.stopped == Stop.LOST, WAIT_S, "the run is told")
        heard = len(until_when)
        renewals = len(authority.renewed)
        until(lambda: len(authority.renewed) > renewals + 1, WAIT_S, "it goes on")
    assert len(until_when) <= heard + 1


@pytest.mark.parametrize(("code", "told"), [("cancelled", Stop.CANCELLED), ("expired", Stop.EXPIRED)])
def test_a_requested_cancel_reaches_its_run_and_nobody_elses(code: str, told: str) -> None:
    authority, events = ByHand(cancelled={1: code}), Heard()
    asked, other = slot(of=lease(item_id=1)), slot(of=lease(item_id=2))
    notes: list[float] = []
    with keeping(authority, events, notify=lambda: notes.append(time.monotonic())) as keeper:
        keeper.add(asked)
        keeper.add(other)
        until(lambda: asked.run.stopped == told, WAIT_S, "the run is told")
        looks = len(authority.looked)
        until(lambda: len(authority.looked) > looks + 2, WAIT_S, "it goes on looking")
    assert asked.told_at is not None
    assert other.run.stopped is None
    assert len(notes) == 1, "it is told once"


def test_a_lease_that_somebody_else_holds_is_lost_once() -> None:
    authority, events = ByHand(lost={1}), Heard()
    gone = slot(of=lease(item_id=1))
    with keeping(authority, events) as keeper:
        keeper.add(gone)
        until(lambda: gone.run.stopped == Stop.LOST, WAIT_S, "the run is told")
        looks = len(authority.looked)
        until(lambda: len(authority.looked) > looks + 2, WAIT_S, "it goes on looking")
    assert events.said == [("lease lost", gone.lease.job_id)]
    assert gone.run.context.lease_gone


def test_one_missed_renewal_loses_nothing_and_a_whole_lease_without_one_does() -> None:
    authority, events = ByHand(away=True), Heard()
    held = slot()
    with keeping(authority, events, ttl_s=0.6, renew_s=0.05) as keeper:
        keeper.add(held)
        until(lambda: authority.recovered >= 2, WAIT_S, "two failed calls")
        assert held.run.stopped is None
        authority.away = False
        renewed = len(authority.renewed)
        until(lambda: len(authority.renewed) > renewed + 1, WAIT_S, "it renews again")
        authority.away = True
        until(lambda: held.run.stopped == Stop.LOST, WAIT_S, "the lease is given up")
    assert ("blind", "ConnectionError") in events.said
    assert events.of(held.lease.job_id) == ["lease lost"]


def test_a_deadline_and_a_time_limit_are_told_when_they_come() -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.1)
    late, long, free = slot(of=lease(item_id=1, deadline=soon)), slot(of=lease(item_id=2), timeout_s=0.1), slot()
    with keeping(ByHand(), Heard()) as keeper:
        for one in (late, long, free):
            keeper.add(one)
        until(lambda: late.run.stopped == Stop.EXPIRED, WAIT_S, "the deadline is told")
        until(lambda: long.run.stopped == Stop.TIMEOUT, WAIT_S, "the time limit is told")
    assert (late.told_at or 0) - late.claimed_at >= 0.09
    assert (long.told_at or 0) - long.claimed_at >= 0.1
    assert free.run.stopped is None


def test_an_item_that_is_claimed_again_while_its_old_run_goes_on_loses_the_old_run_alone() -> None:
    authority, events = ByHand(), Heard()
    old, new = slot(of=lease(item_id=1, epoch=1)), slot(of=lease(item_id=1, epoch=2))
    with keeping(authority, events) as keeper:
        keeper.add(old)
        keeper.add(new)
        until(lambda: old.run.stopped == Stop.LOST, WAIT_S, "the old run is told")
        keeper.remove(old)
        looks = len(authority.looked)
        until(lambda: len(authority.looked) > looks + 1, WAIT_S, "the new one is still kept")
        assert authority.looked[-1] == [new.lease.fence]
    assert new.run.stopped is None
    assert events.said == [("lease lost", old.lease.job_id)]


def test_after_stop_nothing_is_asked() -> None:
    authority = ByHand()
    keeper = LeaseKeeper(authority=authority, events=Heard(), ttl_s=60, renew_s=0.02)
    keeper.start()
    keeper.add(slot())
    until(lambda: authority.renewed, WAIT_S, "a renewal")
    keeper.stop()
    assert not keeper._thread.is_alive()
