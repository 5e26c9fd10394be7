"""Leaders as real processes: two at once by force, and killed at the worst moments. One job for each due time."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import connection

from dispatch.models import Leadership, Schedule
from tests.dispatch.authority import world
from tests.dispatch.schedules.table import Clock, counts, jobs, materializer, schedule
from tests.support.processes import Proc, until

pytestmark = [pytest.mark.process, pytest.mark.store, pytest.mark.usefixtures("world")]

ROOT = Path(__file__).resolve().parents[3]
OFFSETS_S = (-0.1, -0.02, 0.0, 0.02, 0.1)


def leader(place: Path, name: str, until: int, *more: str) -> Proc:
    argv = [sys.executable, "-m", "tests.dispatch.schedules.leader", str(connection.settings_dict["NAME"]), str(until)]
    return Proc(name, [*argv, *more], log=place / f"{name}.log", env=dict(os.environ), cwd=ROOT)


def every_second(name: str, since: int) -> Schedule:
    return schedule(name, cron="* * * * * *", catch_up="all", since=datetime.fromtimestamp(since, UTC))


def each_once(made: Schedule, first: int, last: int) -> None:
    due = [str(job.metadata["scheduled_for"]) for job in jobs(made)]
    assert due == [f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}" for at in range(first, last + 1)]


def test_two_leaders_by_force_dispatch_each_due_time_once(tmp_path: Path) -> None:
    begin = int(time.time()) + 3  # both processes are there by then, or find what they have to make up for
    made = [every_second(name, begin) for name in ("a", "b", "c")]
    with ExitStack() as stack:
        procs = [stack.enter_context(leader(tmp_path, name, begin + 5)) for name in ("one", "two")]
        for proc in procs:
            assert proc.wait(60) == 0, proc.tail()
    for one in made:
        each_once(one, begin + 1, begin + 5)
    assert counts() == {"queued": 15}
    world.check()


def test_a_leader_killed_between_dispatch_and_booking_leaves_neither_and_the_next_one_does_both(
    tmp_path: Path,
) -> None:
    begin = int(time.time()) - 10
    made = every_second("a", begin)
    for number in range(3):
        with leader(tmp_path, f"leader-{number}", begin + 4, "unbooked") as proc:
            assert proc.wait(60) == -signal.SIGKILL, proc.tail()
        assert jobs(made) == []
    world.check()
    look = materializer(Clock(datetime.fromtimestamp(begin + 4, UTC)))
    while look.run_once():
        pass
    each_once(made, begin + 1, begin + 4)
    world.check()


@pytest.mark.slow
def test_through_twenty_kills_of_the_leader_each_due_time_has_exactly_one_job(tmp_path: Path) -> None:
    """Each leader is killed near a due time, from a tenth of a second before to a tenth after."""
    begin = int(time.time())
    made = every_second("hunted", begin)
    argv = [sys.executable, "-m", "tests.dispatch.schedules.nursery", str(connection.settings_dict["NAME"])]
    killed: list[str] = []
    with Proc("nursery", argv, log=tmp_path / "nursery.log", env=dict(os.environ), cwd=ROOT) as nursery:
        while len(killed) < 20:
            leader = until(lambda: leads_since(killed), 20, "somebody leads") or ""
            second = int(time.time()) + 1
            time.sleep(max(0.0, second + OFFSETS_S[len(killed) % len(OFFSETS_S)] - time.time()))
            os.kill(int(leader), signal.SIGKILL)
            killed.append(leader)
        last = int(time.time()) + 2
        until(lambda: len(jobs(made)) >= last - begin, 30, "the last leader has caught up")
        nursery.signal_group(signal.SIGKILL)
    each_once(made, begin + 1, begin + len(jobs(made)))
    assert Leadership.objects.get(role="ticks").term >= len(killed) + 1
    authority = world.authority()
    authority.repair()
    world.check()


def leads_since(killed: list[str]) -> str | None:
    """Who leads, if it is nobody of those that were killed."""
    return Leadership.objects.exclude(holder__in=killed).values_list("holder", flat=True).first()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="elsewhere the queue is written in the same commit")
def test_a_leader_killed_before_the_queue_file_is_written_has_booked_what_repair_makes_claimable(
    tmp_path: Path,
) -> None:
    begin = int(time.time()) - 10
    made = every_second("a", begin)
    with leader(tmp_path, "leader", begin + 2, "unpublished") as proc:
        assert proc.wait(60) == -signal.SIGKILL, proc.tail()
    each_once(made, begin + 1, begin + 1)
    assert world.queue_rows() == {}
    materializer(Clock(datetime.fromtimestamp(begin + 2, UTC))).run_once()
    world.authority().repair()
    each_once(made, begin + 1, begin + 2)
    world.check()
