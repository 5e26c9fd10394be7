"""Limits are exact whoever claims: real processes race for the same turns, and the timeline tells what ran when."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from dispatch.clock import store_now
from dispatch.models import ClaimGate, WorkItem
from dispatch.ports import Delivery, Lease
from sessions_app.models import Turn
from tests.dispatch.authority import world
from tests.dispatch.authority.test_limits import limit
from tests.dispatch.postgres import ground

pytestmark = [pytest.mark.store, pytest.mark.process, pytest.mark.usefixtures("world")]
PROCESSES, LOOPS, WANT = 3, 4, 3
STARTS = "SELECT min(at) FROM work_item_events WHERE to_status = 'running' GROUP BY work_item_id ORDER BY 1"
LIVES = """
SELECT min(at) FILTER (WHERE to_status = 'running'), max(at) FILTER (WHERE to_status = 'succeeded')
FROM work_item_events GROUP BY work_item_id
"""


def race(place: Path) -> None:
    """Let the processes begin together, behind a gate, and run until all is done."""
    gate = ClaimGate.objects.create(scope="fleet", set_at=store_now())
    racers = [
        ground.python(
            "claimer", "-m", "tests.dispatch.postgres.claimer", f"p{n}", LOOPS, WANT, log=place / f"claimer-{n}.log"
        )
        for n in range(PROCESSES)
    ]
    try:
        for racer in racers:
            racer.wait_for_text("ready", within=60)
        gate.delete()
        for racer in racers:
            assert racer.wait(60) == 0, racer.tail()
        claimed = [int(racer.text().splitlines()[-1]) for racer in racers]
    finally:
        for racer in racers:
            racer.end()
    assert sum(claimed) == WorkItem.objects.filter(status="succeeded").count() == WorkItem.objects.count()
    assert min(claimed) > 0, "all of them took part"


def most_at_once(lives: list[tuple[datetime, datetime]]) -> int:
    """An end is written before it is committed, so before another claim can see its place free."""
    steps = sorted([(begin, 1) for begin, _ in lives] + [(end, -1) for _, end in lives])
    running = most = 0
    for _, step in steps:
        running += step
        most = max(most, running)
    return most


def test_a_cap_holds_among_racing_processes_and_is_used_in_full(tmp_path: Path) -> None:
    limit("agent", "echo", max_running=3)
    for n in range(150):
        world.add(f"s-{n}", tenant=f"t{n % 3}")
    race(tmp_path)
    lives = [(begin, end) for begin, end in ground.sql(LIVES)]
    assert most_at_once(lives) == 3


def test_a_rate_holds_in_every_window_among_racing_processes(tmp_path: Path) -> None:
    rate, burst = 40.0, 10
    limit("tenant", "t1", rate_per_s=rate, burst=burst)
    for n in range(100):
        world.add(f"s-{n}")
    race(tmp_path)
    starts = [at for (at,) in ground.sql(STARTS)]
    for first in range(len(starts)):
        for last in range(first + burst, len(starts)):
            window = (starts[last] - starts[first]).total_seconds()
            assert last - first + 1 <= burst + rate * window + 1e-6, f"{last - first + 1} starts in {window} s"
    assert (starts[-1] - starts[0]).total_seconds() < 2 * len(starts) / rate, "and the rate is used"


def _end_elsewhere(lease: Lease) -> None:
    """As another process would: on a connection of its own, committed when this returns."""

    def end() -> None:
        try:
            world.end(lease)
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(end).result(10)


def test_a_lease_begins_after_the_end_that_made_its_turn_claimable(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = world.add(), world.add()
    limit(max_running=5)
    lease, receive = world.claim_one("w1"), world.transport().receive

    def receive_late(**asked: Any) -> list[Delivery]:
        """The claim is under way when the turn before ends."""
        if Turn.objects.filter(work_item_id=first.pk).count() == 0:
            _end_elsewhere(lease)
        return receive(**asked)

    monkeypatch.setattr(world.transport(), "receive", receive_late)
    following = world.claim_one("w2")
    assert following.item_id == second.pk
    world.end(following)
    ended = Turn.objects.get(work_item_id=first.pk).finished_at
    begun = Turn.objects.get(work_item_id=second.pk).started_at
    assert ended is not None
    assert begun is not None
    assert begun > ended
