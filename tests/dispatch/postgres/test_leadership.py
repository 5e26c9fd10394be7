"""One leader, in real processes that are killed and frozen: a new one in time, and never two for one term."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from django.db import connection

from dispatch import wiring
from dispatch.maintenance import ticks as ticks_module
from dispatch.maintenance.leadership import Leader
from dispatch.maintenance.ticks import Duty, Ticks
from dispatch.models import Leadership
from tests.dispatch.postgres import ground
from tests.support.processes import Proc, until

pytestmark = [pytest.mark.store, pytest.mark.process, pytest.mark.django_db(transaction=True)]
TICK_S = 0.5
SLACK_S = 0.5  # a look takes a moment, and so does a new connection


class Candidates:
    """The candidate processes, and what they have said."""

    def __init__(self, procs: list[Proc]) -> None:
        self.procs = {proc.name: proc for proc in procs}

    def said(self) -> list[tuple[str, int, float]]:
        rows = [line.split() for proc in self.procs.values() for line in proc.text().splitlines()]
        return [(row[0], int(row[1]), float(row[2])) for row in rows if len(row) == 3]

    def leader(self) -> Proc:
        """Whoever the row names, once it says so itself."""

        def look() -> Proc | None:
            row = Leadership.objects.filter(role="test").first()
            if row is None or (row.holder, row.term) not in {(holder, term) for holder, term, _ in self.said()}:
                return None
            return self.procs[row.holder]

        found = until(look, 20, "somebody leads")
        assert found is not None
        return found

    def others(self, proc: Proc) -> list[Proc]:
        return [other for other in self.procs.values() if other is not proc]

    def until_all_speak(self) -> None:
        until(lambda: {holder for holder, _, _ in self.said()} == set(self.procs), 30, "every candidate looks")

    def never_two_for_one_term(self) -> None:
        holders: dict[int, set[str]] = {}
        for holder, term, _ in self.said():
            holders.setdefault(term, set()).add(holder)
        holders.pop(0, None)
        assert all(len(of) == 1 for of in holders.values()), holders


@pytest.fixture
def candidates(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Candidates]:
    more = getattr(request, "param", ())
    with contextlib.ExitStack() as stack:
        procs = [
            stack.enter_context(
                ground.python(
                    name, "-m", "tests.dispatch.postgres.candidate", name, TICK_S, *more, log=tmp_path / f"{name}.log"
                )
            )
            for name in ("one", "two", "three")
        ]
        found = Candidates(procs)
        found.until_all_speak()
        yield found
    found.never_two_for_one_term()


def _seconds_until_another_leads(candidates: Candidates, old: Proc, act: Callable[[], None]) -> float:
    began = time.monotonic()
    act()

    def look() -> bool:
        row = Leadership.objects.get(role="test")
        return row.holder != old.name

    until(look, 10 * TICK_S, "another leads", every=0.01)
    return time.monotonic() - began


def test_when_the_leader_dies_another_leads_within_one_tick_and_the_rest_follow(candidates: Candidates) -> None:
    for _ in range(2):
        old = candidates.leader()
        took = _seconds_until_another_leads(candidates, old, old.kill)
        assert took <= TICK_S + SLACK_S
        del candidates.procs[old.name]


@pytest.mark.parametrize("candidates", [("nolock",)], indirect=True)
def test_without_a_lock_two_silent_ticks_decide(candidates: Candidates) -> None:
    old = candidates.leader()
    took = _seconds_until_another_leads(candidates, old, old.kill)
    assert TICK_S < took <= 3 * TICK_S + SLACK_S


def test_when_the_leader_is_frozen_another_leads_within_three_ticks_and_it_finds_that_it_does_not(
    candidates: Candidates,
) -> None:
    old = candidates.leader()
    took = _seconds_until_another_leads(candidates, old, lambda: old.signal(signal.SIGSTOP))
    assert took <= 3 * TICK_S + SLACK_S
    new = candidates.leader()
    woken = time.monotonic()
    old.signal(signal.SIGCONT)
    until(lambda: any(holder == old.name and at > woken + TICK_S for holder, _, at in candidates.said()), 10, "a look")
    assert {term for holder, term, at in candidates.said() if holder == old.name and at > woken + TICK_S} == {0}
    row = Leadership.objects.get(role="test")
    assert row.holder == new.name, "who wakes up takes nothing away from who beats"


def test_the_death_of_the_second_leader_is_seen_at_once_too(candidates: Candidates) -> None:
    """It took over by silence, and yet holds the lock of its own term."""
    old = candidates.leader()
    _seconds_until_another_leads(candidates, old, lambda: old.signal(signal.SIGSTOP))
    new = candidates.leader()
    took = _seconds_until_another_leads(candidates, new, new.kill)
    assert took <= TICK_S + SLACK_S
    old.signal(signal.SIGCONT)


def close_pools() -> None:
    """This process's own sessions were ended too."""
    connection.close()
    cast(Any, connection).close_pool()


def test_a_leader_whose_backends_were_terminated_leads_on_or_is_followed_by_a_later_term(
    candidates: Candidates,
) -> None:
    old = candidates.leader()
    ground.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    said = time.monotonic()

    def settled() -> bool:
        row = Leadership.objects.get(role="test")
        return any(
            (holder, term) == (row.holder, row.term) and at > said + 2 * TICK_S
            for holder, term, at in candidates.said()
        )

    close_pools()
    until(settled, 10, "somebody leads again")
    assert Leadership.objects.get(role="test").term in (1, 2), old.name


def test_a_leader_that_leaves_in_order_is_followed_at_once() -> None:
    first = Leader("test", holder="first", tick_s=60, lock=wiring.leader_lock())
    second = Leader("test", holder="second", tick_s=60, lock=wiring.leader_lock())
    assert first.lead()
    assert not second.lead()
    first.resign()
    assert second.lead()
    assert not first.lead()
    first.resign()
    second.resign()


def test_two_that_are_leaders_by_force_share_every_round_of_a_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leader, "lead", lambda self: True)
    ran: list[str] = []

    def ticks(holder: str) -> Ticks:
        def run() -> int:
            ran.append(holder)
            return 1

        return Ticks(
            quick=[],
            duties=[Duty(name="once", run=run, period_s=60, leader_only=True)],
            holder=holder,
            tick_s=60,
        )

    monkeypatch.setattr(ticks_module, "_extra", [])
    both = [ticks("first"), ticks("second")]
    for one in both:
        one.leader.term = 7
    for _ in range(5):
        for one in both:
            one.look()
    assert ran == ["first"]
