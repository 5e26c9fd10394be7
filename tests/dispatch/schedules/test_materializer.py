"""Due times become jobs: once each, whatever was missed, refused or is unfinished."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import DatabaseError

from dispatch import states, wiring
from dispatch.maintenance import schedule_runs
from dispatch.maintenance.leadership import Leader
from dispatch.maintenance.upkeep import make_ticks
from dispatch.models import Schedule, ScheduleCounter, ScheduleRun, WorkItem
from dispatch.schedules import services
from tests.dispatch.authority import world
from tests.dispatch.schedules.table import (
    MINE,
    NOON,
    THEIRS,
    TICK_S,
    Clock,
    counts,
    due_times,
    history,
    jobs,
    materializer,
    schedule,
)

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


def test_a_due_time_becomes_one_job_and_the_schedule_moves_on() -> None:
    made, clock = schedule(session_id="s-1", payload={"n": 1}, priority="high"), Clock()
    assert materializer(clock).run_once() == 0
    clock.pass_s(61)
    assert materializer(clock).run_once() == 1
    assert materializer(clock).run_once() == 0
    (job,) = jobs(made)
    assert (job.status, job.task, job.payload, job.priority) == (states.READY, "do it", {"n": 1}, 1)
    assert job.metadata == {"schedule": "s", "scheduled_for": "2026-05-01T12:01:00Z", "background": True}
    made.refresh_from_db()
    assert made.next_run_at == NOON + timedelta(minutes=2)
    assert (made.last_run_at, made.last_job_id) == (clock.now, job.job_id)
    assert world.claim_one().job_id == job.job_id
    assert ScheduleCounter.objects.get(outcome="queued").late_s == pytest.approx(1)
    world.check()


def test_each_run_without_a_session_is_its_own() -> None:
    made, clock = schedule(), Clock()
    for _ in range(2):
        clock.pass_s(60)
        materializer(clock).run_once()
    assert [job.session.session_id for job in jobs(made)] == [job.job_id for job in jobs(made)]


def test_the_same_name_of_two_tenants_is_two_schedules() -> None:
    mine, theirs, clock = schedule(), schedule(caller=THEIRS), Clock()
    clock.pass_s(60)
    assert materializer(clock).run_once() == 2
    assert len({job.job_id for job in (*jobs(mine), *jobs(theirs))}) == 2


@pytest.mark.parametrize(
    ("catch_up", "runs", "past"),
    [
        ("once", ["20:00"], [("missed", 19), ("queued", 1)]),
        ("skip", [], [("missed", 20)]),
        ("all", [f"{minute:02}:00" for minute in range(1, 21)], [("queued", 1)] * 20),
    ],
)
def test_what_twenty_minutes_without_a_leader_leave(
    catch_up: str, runs: list[str], past: list[tuple[str, int]]
) -> None:
    made, clock = schedule(catch_up=catch_up), Clock()
    clock.pass_s(20 * 60 + 30)
    materializer(clock).run_once()
    assert due_times(made) == runs
    assert history(made) == past
    made.refresh_from_db()
    assert made.next_run_at == NOON + timedelta(minutes=21)


@pytest.mark.parametrize("catch_up", ["once", "skip", "all"])
def test_a_leader_that_is_followed_late_misses_nothing(catch_up: str) -> None:
    made, clock = schedule(cron="*/5 * * * * *", catch_up=catch_up), Clock()
    clock.pass_s(4 * TICK_S)
    assert materializer(clock).run_once() == 4
    assert due_times(made) == ["00:05", "00:10", "00:15", "00:20"]
    assert counts() == {"queued": 4}


def test_all_makes_up_for_the_newest_hundred_and_counts_what_lies_before() -> None:
    made, clock = schedule(catch_up="all"), Clock()
    clock.pass_s(150 * 60)
    while materializer(clock).run_once():
        pass
    assert len(jobs(made)) == 100
    assert due_times(made)[-1] == "30:00"
    assert counts() == {"missed": 50, "queued": 100}


# -- overlap -----------------------------------------------------------------------------------------------------------
def test_with_enqueue_runs_wait_behind_each_other() -> None:
    made, clock = schedule(session_id="s-1"), Clock()
    for _ in range(3):
        clock.pass_s(60)
        materializer(clock).run_once()
    assert [job.status for job in jobs(made)] == [states.READY] * 3


def test_with_skip_nothing_is_dispatched_while_an_earlier_run_is_unfinished() -> None:
    made, clock = schedule(overlap="skip"), Clock()
    for _ in range(3):
        clock.pass_s(60)
        materializer(clock).run_once()
    assert history(made) == [("queued", 1), ("skipped", 1), ("skipped", 1)]
    world.end(world.claim_one())
    clock.pass_s(60)
    materializer(clock).run_once()
    assert due_times(made) == ["01:00", "04:00"]


def test_with_skip_a_run_is_remembered_however_many_were_skipped_behind_it() -> None:
    made, clock = schedule(overlap="skip"), Clock()
    for _ in range(schedule_runs.KEPT_RUNS + 5):
        clock.pass_s(60)
        materializer(clock).run_once()
    assert len(jobs(made)) == 1
    assert ScheduleRun.objects.filter(schedule=made).count() == schedule_runs.KEPT_RUNS


def test_with_coalesce_one_run_waits_behind_the_running_one_with_the_latest_task() -> None:
    made, clock = schedule(overlap="coalesce", session_id="s-1"), Clock()
    clock.pass_s(60)
    materializer(clock).run_once()
    running = world.claim_one()
    for task in ("second", "third"):
        services.schedule_change(caller=MINE, name="s", change={"task": task})
        clock.pass_s(60)
        materializer(clock).run_once()
    first, second = jobs(made)
    assert (first.pk, first.task, second.task) == (running.item_id, "do it", "third")
    assert history(made) == [("queued", 1), ("queued", 1), ("coalesced", 1)]
    made.refresh_from_db()
    assert made.last_job_id == second.job_id
    world.check()


def test_another_callers_turn_in_the_session_is_not_coalesced_into() -> None:
    other = world.add("s-1", task="theirs")
    made, clock = schedule(overlap="coalesce", session_id="s-1"), Clock()
    clock.pass_s(60)
    materializer(clock).run_once()
    assert world.fresh(other).task == "theirs"
    assert [job.task for job in jobs(made)] == ["do it"]


# -- refusals ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("catch_up", ["skip", "once", "all"])
def test_a_due_time_that_a_full_queue_refuses_is_tried_each_tick_until_it_is_admitted(
    catch_up: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, clock = schedule(cron="0 * * * *", catch_up=catch_up), Clock()
    full = world.authority(max_depth=1)
    monkeypatch.setattr(wiring, "authority", lambda: full)
    filler = world.new("other")
    full.submit([filler])
    clock.pass_s(3600)
    for tries in range(1, 5):
        assert materializer(clock).run_once() == 0
        made.refresh_from_db()
        assert (made.due_at, made.next_run_at) == (NOON + timedelta(hours=1), clock.now + timedelta(seconds=TICK_S))
        assert (made.last_error, counts()) == ("queue_full", {"refused": tries})
        assert materializer(clock).run_once() == 0
        clock.pass_s(600)
    world.run(WorkItem.objects.get(job_id=filler.job_id))
    materializer(clock).run_once()
    assert due_times(made) == ["00:00"]
    made.refresh_from_db()
    assert (made.refused_since, made.last_error, made.next_run_at) == (None, "", NOON + timedelta(hours=2))
    world.check()


def test_what_falls_due_behind_a_refused_time_follows_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    made, clock = schedule(), Clock()
    full = world.authority(max_depth=0)
    with monkeypatch.context() as patched:
        patched.setattr(wiring, "authority", lambda: full)
        clock.pass_s(60)
        materializer(clock).run_once()
    clock.pass_s(10 * 60)
    materializer(clock).run_once()
    assert due_times(made) == ["01:00", "11:00"]
    assert counts() == {"missed": 9, "queued": 2, "refused": 1}


def test_a_schedule_that_cannot_be_read_says_so_and_stops_no_other() -> None:
    broken, fine, clock = schedule("broken"), schedule("fine"), Clock()
    Schedule.objects.filter(pk=broken.pk).update(timezone="Mars/Olympus")
    clock.pass_s(60)
    assert materializer(clock).run_once() == 1
    assert due_times(fine) == ["01:00"]
    broken.refresh_from_db()
    assert (broken.last_error, broken.next_run_at) == ("BadZone", clock.now + timedelta(seconds=TICK_S))
    Schedule.objects.filter(pk=broken.pk).update(timezone="UTC")
    clock.pass_s(TICK_S)
    materializer(clock).run_once()
    assert due_times(broken) == ["01:00"]


def test_rules_of_a_zone_that_have_changed_lose_no_due_time() -> None:
    made, clock = schedule(cron="0 12 * * *"), Clock()
    made.due_at = made.next_run_at = NOON + timedelta(hours=23)  # by the rules of yesterday
    made.save()
    clock.pass_s(23 * 3600)
    materializer(clock).run_once()
    assert jobs(made) == []
    clock.pass_s(3600)
    materializer(clock).run_once()
    assert due_times(made) == ["00:00"]


# -- one for each due time ---------------------------------------------------------------------------------------------
def test_who_does_not_lead_dispatches_nothing() -> None:
    made, clock = schedule(), Clock()
    clock.pass_s(60)
    assert materializer(clock, leads=lambda: False).run_once() == 0
    assert jobs(made) == []


def test_a_leader_whose_term_has_ended_dispatches_nothing() -> None:
    made, clock = schedule(), Clock()
    old, new = Leader("ticks", holder="old", tick_s=TICK_S), Leader("ticks", holder="new", tick_s=TICK_S)
    assert old.lead()
    old_term = old.term
    old.resign()
    assert new.lead()
    old.term = old_term  # it has not looked yet
    clock.pass_s(60)
    assert materializer(clock, leads=old.holds_term).run_once() == 0
    assert materializer(clock, leads=new.holds_term).run_once() == 1
    assert len(jobs(made)) == 1


def test_a_store_that_has_forgotten_the_booking_finds_the_same_job() -> None:
    made, clock = schedule(), Clock()
    clock.pass_s(60)
    materializer(clock).run_once()
    Schedule.objects.filter(pk=made.pk).update(due_at=made.due_at, next_run_at=made.next_run_at)
    materializer(clock).run_once()
    assert len(jobs(made)) == 1


def test_a_failure_between_dispatch_and_booking_leaves_neither(monkeypatch: pytest.MonkeyPatch) -> None:
    made, clock = schedule(), Clock()
    clock.pass_s(60)

    def fail(*_: object, **__: object) -> None:
        raise DatabaseError("the server went away")

    with monkeypatch.context() as patched:
        patched.setattr(Schedule, "save", fail)
        with pytest.raises(DatabaseError):
            materializer(clock).run_once()
    assert jobs(made) == []
    assert world.queue_rows() == {}
    assert materializer(clock).run_once() == 1
    assert due_times(made) == ["01:00"]
    world.check()


def test_jitter_moves_each_run_and_never_past_the_next() -> None:
    made, clock = schedule(jitter_s=30.0), Clock()
    assert made.due_at == NOON + timedelta(minutes=1)
    assert made.next_run_at is not None
    assert made.due_at < made.next_run_at < made.due_at + timedelta(seconds=30)
    clock.now = made.next_run_at - timedelta(milliseconds=1)
    assert materializer(clock).run_once() == 0
    clock.now = made.next_run_at
    assert materializer(clock).run_once() == 1
    assert due_times(made) == ["01:00"]


def test_the_worker_that_leads_looks_at_the_schedules() -> None:
    made = schedule(cron="* * * * * *", since=NOON)
    made.due_at = made.next_run_at = NOON
    made.save()
    ticks = make_ticks(world.authority(), holder="w", tick_s=60, stale_s=90)
    assert not jobs(made)
    ticks.look()
    ticks.look()
    assert len(jobs(made)) >= 1
    ticks.close()
