"""Due times: tables over the changes of the clock, and properties against a clock that is read minute by minute."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from datetime import UTC, datetime, timedelta
from itertools import accumulate, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatch.schedules.recurrence import BadCron, BadZone, Recurrence, check_cron, zone_of

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"
SPRING = {BERLIN: "2026-03-29", NEW_YORK: "2026-03-08", LORD_HOWE: "2026-10-04"}
AUTUMN = {BERLIN: "2026-10-25", NEW_YORK: "2026-11-01", LORD_HOWE: "2026-04-05"}
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)


def of_day(cron: str, zone: str, day: str, later: int = 0) -> list[str]:
    """The due times of one day, or of one some days later, by the wall clock, with the offset that it then has."""
    info = ZoneInfo(zone)
    midnight = datetime.fromisoformat(day).replace(tzinfo=info) + later * DAY
    begin = midnight.astimezone(UTC)
    end = (midnight + DAY).astimezone(UTC) - timedelta(microseconds=1)
    due = Recurrence(cron, zone).newest(since=begin, until=end, limit=2_000)
    return [at.astimezone(info).strftime("%H:%M%z") for at in due]


@pytest.mark.parametrize(
    ("zone", "cron", "due"),
    [
        # a fixed time that is jumped over runs at the jump
        (BERLIN, "30 2 * * *", ["03:00+0200"]),
        (NEW_YORK, "30 2 * * *", ["03:00-0400"]),
        (LORD_HOWE, "15 2 * * *", ["02:30+1100"]),
        # several become one, and one with what is due at the jump itself
        (BERLIN, "15,45 2 * * *", ["03:00+0200"]),
        (BERLIN, "0 1-4 * * *", ["01:00+0100", "03:00+0200", "04:00+0200"]),
        (LORD_HOWE, "0,30 1-3 * * *", ["01:00+1030", "01:30+1030", "02:30+1100", "03:00+1100", "03:30+1100"]),
        # an interval has nothing at a time that no clock shows
        (BERLIN, "*/30 2 * * *", []),
        (BERLIN, "30 */2 * * *", [f"{h:02}:30+0{2 if h > 2 else 1}00" for h in range(0, 24, 2) if h != 2]),
        (LORD_HOWE, "0 0-3 * * *", ["00:00+1030", "01:00+1030", "02:30+1100", "03:00+1100"]),
    ],
)
def test_when_the_clock_is_put_forward(zone: str, cron: str, due: list[str]) -> None:
    assert of_day(cron, zone, SPRING[zone]) == due


@pytest.mark.parametrize(
    ("zone", "cron", "due"),
    [
        # a fixed time that is shown twice runs the first time
        (BERLIN, "30 2 * * *", ["02:30+0200"]),
        (NEW_YORK, "30 1 * * *", ["01:30-0400"]),
        (LORD_HOWE, "45 1 * * *", ["01:45+1100"]),
        # an interval runs both times
        (BERLIN, "*/30 2 * * *", ["02:00+0200", "02:30+0200", "02:00+0100", "02:30+0100"]),
        (NEW_YORK, "*/30 1 * * *", ["01:00-0400", "01:30-0400", "01:00-0500", "01:30-0500"]),
        (LORD_HOWE, "*/20 1 * * *", ["01:00+1100", "01:20+1100", "01:40+1100", "01:40+1030"]),
    ],
)
def test_when_the_clock_is_put_back(zone: str, cron: str, due: list[str]) -> None:
    assert of_day(cron, zone, AUTUMN[zone]) == due


@pytest.mark.parametrize(("zone", "hours"), [(BERLIN, 23), (NEW_YORK, 23), (LORD_HOWE, 23)])
def test_an_hourly_line_runs_once_for_each_hour_that_the_clock_shows_in_spring(zone: str, hours: int) -> None:
    assert len(of_day("0 * * * *", zone, SPRING[zone])) == hours


@pytest.mark.parametrize(("zone", "hours"), [(BERLIN, 25), (NEW_YORK, 25), (LORD_HOWE, 24)])
def test_an_hourly_line_runs_again_for_an_hour_that_is_shown_again(zone: str, hours: int) -> None:
    """On Lord Howe Island the clock goes back by half an hour: no full hour is shown twice."""
    assert len(of_day("0 * * * *", zone, AUTUMN[zone])) == hours


@pytest.mark.parametrize("change", [SPRING, AUTUMN])
@pytest.mark.parametrize("zone", [BERLIN, NEW_YORK, LORD_HOWE])
def test_a_daily_time_comes_once_on_each_day_around_the_change(zone: str, change: dict[str, str]) -> None:
    for days in range(-3, 4):
        for wall in ("30 1", "15 2", "30 2", "0 3"):
            assert len(of_day(f"{wall} * * *", zone, change[zone], days)) == 1, (days, wall)


def test_a_line_of_six_fields_begins_with_the_second() -> None:
    moment = datetime(2026, 5, 1, 12, 0, 3, 400_000, tzinfo=UTC)
    due = Recurrence("*/5 * * * * *", "UTC").upcoming(moment, 3)
    assert [at.second for at in due] == [5, 10, 15]


def test_a_due_time_comes_after_the_moment_and_not_at_it() -> None:
    daily = Recurrence("0 0 * * *", "UTC")
    noon = datetime(2026, 5, 1, tzinfo=UTC)
    assert daily.after(noon) == noon + DAY
    assert daily.after(noon - timedelta(microseconds=1)) == noon


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "5 fields"),
        ("* * * *", "5 fields"),
        ("* * * * * * *", "5 fields"),
        ("60 * * * *", "minute"),
        ("0 24 * * *", "hour"),
        ("0 0 32 * *", "day-of-month"),
        ("0 0 * 13 *", "month"),
        ("0 0 * * nay", "day-of-week"),
        ("*/0 * * * *", "minute"),
        ("0 0 31 2 *", "day-of-month"),
        ("@daily", "5 fields"),
    ],
)
def test_a_line_that_cannot_be_read_says_which_field_is_wrong(line: str, says: str) -> None:
    with pytest.raises(BadCron, match=says):
        check_cron(line)


@pytest.mark.parametrize("name", ["", "Europe", "Europe/Paris/x", "../etc/passwd", "/etc/localtime", "CEST+1", "utc "])
def test_a_zone_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(BadZone, match="Europe/Berlin"):
        zone_of(name)


@given(st.text(alphabet="0123456789*/,-#LW SUNMOFEB?²", max_size=24))
@settings(max_examples=400, deadline=None)
def test_any_text_is_read_or_refused_in_words(line: str) -> None:
    with contextlib.suppress(BadCron):
        check_cron(line)


# -- properties --------------------------------------------------------------------------------------------------------
NUMBER = {"minute": (0, 59), "hour": (0, 23)}


def field(name: str) -> st.SearchStrategy[str]:
    low, high = NUMBER[name]
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        st.sampled_from([5, 7, 15, 20]).map(lambda step: f"*/{step}"),
        number.map(str),
        st.tuples(number, number).map(lambda pair: f"{min(pair)}-{max(pair)}"),
        st.lists(number, min_size=2, max_size=3, unique=True).map(lambda some: ",".join(map(str, sorted(some)))),
    )


lines = st.tuples(field("minute"), field("hour")).map(lambda parts: f"{parts[0]} {parts[1]} * * *")
zones = st.sampled_from([BERLIN, NEW_YORK, LORD_HOWE])
changes = st.sampled_from([SPRING, AUTUMN])
minutes = st.integers(0, 2 * 24 * 60)


def by_the_clock(cron: str, zone: str, begin: datetime, *, fixed: bool) -> list[datetime]:
    """The due times of four days, found by looking at the clock every minute."""
    info = ZoneInfo(zone)
    moments = [begin + n * MINUTE for n in range(4 * 24 * 60)]
    clock = [at.astimezone(info).replace(tzinfo=None, fold=0) for at in moments]
    walls = list(takewhile(lambda wall: wall <= max(clock), CronSim(cron, clock[0] - timedelta(seconds=1))))
    shown = set(walls)
    if not fixed:
        return [at for at, wall in zip(moments, clock, strict=True) if wall in shown]
    # fixed times are those of every calendar day; each comes when the clock first shows it, or more
    latest = list(accumulate(clock, max))
    return sorted({moments[bisect_left(latest, wall)] for wall in walls})


@given(lines, zones, changes, minutes)
@settings(max_examples=25, deadline=None)
def test_the_next_time_is_the_one_that_the_wall_clock_shows(
    cron: str, zone: str, change: dict[str, str], minute: int
) -> None:
    begin = datetime.fromisoformat(change[zone]).replace(tzinfo=UTC) - DAY
    moment = begin + minute * MINUTE
    recurrence = Recurrence(cron, zone)
    every = by_the_clock(cron, zone, begin, fixed=recurrence.fixed)
    assert recurrence.after(moment) == next(at for at in every if at > moment)


@given(lines, zones, changes, minutes, st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_due_times_grow_and_the_newest_are_the_last_of_them(
    cron: str, zone: str, change: dict[str, str], minute: int, limit: int
) -> None:
    begin = datetime.fromisoformat(change[zone]).replace(tzinfo=UTC) - DAY
    until = begin + minute * MINUTE
    recurrence = Recurrence(cron, zone)
    every, at = [], recurrence.after(begin - timedelta(microseconds=1))
    while at <= until:
        every.append(at)
        at = recurrence.after(at)
    assert every == sorted(set(every))
    assert recurrence.newest(since=begin, until=until, limit=limit) == every[-limit:]
