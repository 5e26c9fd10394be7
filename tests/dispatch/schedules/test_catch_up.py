"""What becomes of due times that have come."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.schedules.catch_up import MOST, POLICIES, Due, Timetable, choose
from dispatch.schedules.recurrence import Recurrence

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
GRACE = timedelta(seconds=20)


def dues(*ages_s: float) -> list[Due]:
    """Due times so many seconds ago."""
    return [Due(at=NOON - timedelta(seconds=age), run_at=NOON - timedelta(seconds=age)) for age in ages_s]


@pytest.mark.parametrize(
    ("ages_s", "policy", "run", "missed", "through"),
    [
        # a late leader is no outage: each runs, whatever the policy
        ((15, 10, 5), "skip", 15, 0, 15),
        ((15, 10, 5), "once", 15, 0, 15),
        ((15, 10, 5), "all", 15, 0, 15),
        ((20,), "skip", 20, 0, 20),
        # an outage
        ((90, 30), "skip", None, 2, 30),
        ((90, 30, 15, 5), "skip", 15, 2, 15),
        ((90, 30, 5), "once", 5, 2, 5),
        ((90,), "once", 90, 0, 90),
        ((90, 30, 5), "all", 90, 0, 90),
    ],
)
def test_the_table(ages_s: tuple[float, ...], policy: str, run: float | None, missed: int, through: float) -> None:
    choice = choose(dues(*ages_s), policy=policy, now=NOON, grace=GRACE)
    assert choice.run == (None if run is None else dues(run)[0])
    assert (choice.missed, choice.through) == (missed, dues(through)[0].at)


@given(st.lists(st.integers(0, 600), min_size=1, max_size=50, unique=True), st.sampled_from(POLICIES))
def test_each_due_time_runs_is_missed_or_is_left_for_later_and_none_is_both(ages: list[int], policy: str) -> None:
    pending = dues(*sorted(ages, reverse=True))
    choice = choose(pending, policy=policy, now=NOON, grace=GRACE)
    settled = [due for due in pending if due.at <= choice.through]
    assert len(settled) == choice.missed + (choice.run is not None)
    assert choice.run is None or choice.run == settled[-1]


def table(cron: str = "* * * * *", *, jitter_s: float = 0, key: str = "t\0s") -> Timetable:
    return Timetable(recurrence=Recurrence(cron, "UTC"), jitter_s=jitter_s, key=key)


def test_twenty_minutes_of_an_every_minute_line_have_come() -> None:
    pending, before = table().come(since=NOON, now=NOON + timedelta(minutes=20))
    assert (len(pending), before) == (21, 0)


def test_no_more_than_the_newest_hundred_are_looked_at_after_a_long_time() -> None:
    pending, before = table().come(since=NOON, now=NOON + timedelta(days=7))
    assert (len(pending), before) == (MOST, MOST)
    assert pending[-1].at == NOON + timedelta(days=7)
    pending, before = table().come(since=NOON, now=NOON + timedelta(minutes=MOST + 4))
    assert (len(pending), before) == (MOST, 5)


@given(st.floats(0.001, 3600), st.text(max_size=8), st.integers(0, 10_000))
def test_a_delay_is_always_the_same_and_ends_before_the_next_due_time(jitter_s: float, key: str, minute: int) -> None:
    moment = NOON + timedelta(minutes=minute)
    due = table(jitter_s=jitter_s, key=key).after(moment)
    assert due == table(jitter_s=jitter_s, key=key).after(moment)
    assert due.at <= due.run_at <= due.at + timedelta(seconds=min(jitter_s, 60))


def test_schedules_of_one_due_time_are_spread() -> None:
    delays = {table("0 * * * *", jitter_s=600, key=f"t\0s-{n}").after(NOON).run_at for n in range(50)}
    assert len(delays) == 50
    assert max(delays) - min(delays) > timedelta(minutes=5)


def test_a_due_time_whose_delay_is_not_over_has_not_come() -> None:
    timetable = table("0 * * * *", jitter_s=600)
    due = timetable.after(NOON)
    assert timetable.come(since=due.at, now=due.run_at - timedelta(seconds=1))[0] == []
    assert timetable.come(since=due.at, now=due.run_at)[0] == [due]
