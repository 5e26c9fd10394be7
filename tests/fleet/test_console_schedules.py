"""The page of schedules: what it says, and what may be done there."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from dispatch.models import Schedule, ScheduleRun, WorkItem
from dispatch.schedules.selectors import failures_in_a_row
from sessions_app.models import AuditEntry
from tests.fleet import rows
from tests.fleet.test_console import HOSTILE, act, person, said, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

PAGE = "admin:dispatch_schedule_changelist"
JULY = datetime(2030, 7, 1, 4, tzinfo=UTC)  # six in the morning in Berlin


def detail(client: Client, schedule: Schedule) -> str:
    return text(client.get(reverse("admin:dispatch_schedule_change", args=[schedule.pk])))


def test_the_list_says_in_words_how_each_stands(client: Client) -> None:
    person(client)
    rows.schedule("fine")
    rows.schedule("overdue", run_s=-90)
    rows.schedule("full", refused_s=180)
    rows.schedule("sleeps", enabled=False)
    shown = text(client.get(reverse(PAGE)))
    states = re.findall(r"\b(on|late|refused|off)\s*</span>", shown)
    assert sorted(states) == ["late", "off", "on", "refused"]
    assert "tried again each tick for 3 min: queue full" in shown
    assert "0 * * * * · UTC" in shown


def test_the_detail_shows_the_next_five_runs_in_both_clocks_and_the_last_runs(client: Client) -> None:
    person(client)
    schedule = rows.schedule(
        "digest", cron="0 6 * * *", timezone="Europe/Berlin", due_at=JULY, next_run_at=JULY, task=HOSTILE
    )
    job = rows.item(rows.session("digest"), status="succeeded")
    at = JULY - timedelta(days=1)
    ScheduleRun.objects.create(schedule=schedule, due_at=at, at=at, outcome="missed", count=7)
    ScheduleRun.objects.create(schedule=schedule, due_at=at, at=at, outcome="queued", job_id=job.job_id)
    ScheduleRun.objects.create(schedule=schedule, due_at=at, at=at, outcome="queued", job_id="orch-gone")
    shown = detail(client, schedule)
    for day in range(1, 6):
        assert f"2030-07-{day:02} 06:00:00 +0200" in shown
        assert f"2030-07-{day:02} 04:00:00<" in shown
    assert "2030-07-06" not in shown
    for seen in ("7 due times", job.job_id, "succeeded", "orch-gone"):
        assert seen in shown
    assert "<img src=x" not in shown


def test_one_that_is_off_and_one_that_cannot_be_read_say_so(client: Client) -> None:
    person(client)
    assert "None: it is off." in detail(client, rows.schedule("off", enabled=False))
    assert "cannot be read" in detail(client, rows.schedule("broken", timezone="Mars/Olympus"))
    assert "It has not run yet." in detail(client, rows.schedule("new"))


def test_an_operator_runs_pauses_and_resumes_and_each_is_audited(client: Client) -> None:
    user = person(client, group="fleet-operator", tenants=("t1",))
    one, two = rows.schedule("one"), rows.schedule("two")
    assert said(act(client, PAGE, "run_now", one)) == ["Run now: 1 queued."]
    job = WorkItem.objects.get()
    assert job.metadata["schedule"] == "one"
    assert said(act(client, PAGE, "pause_schedules", one, two, reason="vendor down")) == ["Pause: 2 off."]
    one.refresh_from_db()
    assert (one.enabled, one.paused_by, one.paused_reason) == (False, user.username, "vendor down")
    assert said(act(client, PAGE, "resume_schedules", one)) == ["Resume: 1 on."]
    one.refresh_from_db()
    assert one.enabled
    entries = (
        AuditEntry.objects.filter(object_type="schedule").order_by("id").values_list("verb", "actor_kind", "tenant")
    )
    assert list(entries) == [(verb, "staff", "t1") for verb in ("run", "pause", "pause", "resume")]
    assert LogEntry.objects.filter(user=user, object_id=str(one.pk)).count() == 3


def test_a_pause_needs_a_reason(client: Client) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    one = rows.schedule("one")
    assert said(act(client, PAGE, "pause_schedules", one, reason=" ")) == ["Pause: give a reason. Nothing was done."]
    one.refresh_from_db()
    assert one.enabled


@pytest.mark.parametrize("action", ["run_now", "pause_schedules", "resume_schedules"])
def test_a_viewer_is_offered_nothing_and_another_tenants_cannot_be_chosen(client: Client, action: str) -> None:
    theirs = rows.schedule("theirs", tenant="t2")
    mine = rows.schedule("mine")
    before = list(Schedule.objects.order_by("pk").values())
    person(client, "vic", group="fleet-viewer", tenants=("t1",))
    assert action not in text(client.get(reverse(PAGE)))
    assert act(client, PAGE, action, mine, reason="x").status_code == 403
    person(client, "olga", group="fleet-operator", tenants=("t1",))
    act(client, PAGE, action, theirs, reason="x")
    assert client.get(reverse("admin:dispatch_schedule_change", args=[theirs.pk])).status_code == 404
    assert list(Schedule.objects.order_by("pk").values()) == before
    assert not WorkItem.objects.exists()


def test_all_that_match_is_refused_and_nothing_is_edited_by_hand(client: Client) -> None:
    person(client)
    one: Any = rows.schedule("one")
    assert "Choose the schedules" in said(act(client, PAGE, "run_now", one, select_across="1"))[0]
    assert client.get(reverse("admin:dispatch_schedule_add")).status_code == 403
    answer = client.post(reverse("admin:dispatch_schedule_change", args=[one.pk]), {"cron": "* * * * *"})
    assert answer.status_code == 403
    assert not WorkItem.objects.exists()


def test_the_list_has_a_strip_of_the_last_runs_and_the_failures_in_a_row(
    client: Client, django_assert_max_num_queries: Any
) -> None:
    person(client)
    session = rows.session("runs")
    for name, statuses in (
        ("bad", ["succeeded", "failed", "dead_letter", "running"]),
        ("good", ["failed", "succeeded"]),
    ):
        schedule = rows.schedule(name)
        for status in statuses:
            job = rows.item(session if status != "running" else rows.session("busy"), status=status)
            ScheduleRun.objects.create(schedule=schedule, due_at=JULY, at=JULY, outcome="queued", job_id=job.job_id)
    good = Schedule.objects.get(name="good")
    ScheduleRun.objects.create(schedule=good, due_at=JULY, at=JULY, outcome="skipped")
    rows.schedule("new")
    with django_assert_max_num_queries(15):
        shown = text(client.get(reverse(PAGE)))
    assert "The last 4 runs, oldest first: succeeded, failed, dead letter, running" in shown
    assert "The last 3 runs, oldest first: failed, succeeded, skipped" in shown
    in_a_row = re.findall(r"field-failures[^>]*>\s*(?:<[^>]*>\s*)*(\d+)", shown)
    assert sorted(in_a_row) == ["0", "0", "2"]
    assert "failed, dead letter, running" in detail(client, Schedule.objects.get(name="bad"))


def test_failures_in_a_row_go_back_to_the_last_other_end() -> None:
    run: Any = ScheduleRun()
    for statuses, count in (
        ([], 0),
        (["failed", "failed"], 2),
        (["running", None, "failed", "succeeded", "failed"], 1),
        (["cancelled", "failed"], 0),
    ):
        assert failures_in_a_row([(run, status) for status in statuses]) == count, statuses
