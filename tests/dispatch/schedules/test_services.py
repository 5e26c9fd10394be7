"""What callers may do with schedules, and what is written about it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from dispatch import wiring
from dispatch.clock import store_now
from dispatch.errors import Invalid, QueueFull, ScheduleExists, ScheduleNotFound
from dispatch.models import Schedule, ScheduleRun, WorkItem
from dispatch.schedules import selectors, services
from sessions_app.models import AuditEntry
from tests.dispatch.authority import world
from tests.dispatch.schedules.table import MINE, PLATFORM, THEIRS, counts, history, jobs

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

BODY = {"name": "s", "cron": "0 6 * * *", "timezone": "Europe/Berlin", "task": "do it", "agent_name": "echo"}


def create(**more: Any) -> dict[str, Any]:
    shown, _ = services.schedule_create(caller=MINE, body={**BODY, **more})
    return shown


def row() -> Schedule:
    return Schedule.objects.get(tenant="t1", name="s")


def audited() -> list[tuple[str, str, str]]:
    entries = AuditEntry.objects.filter(object_type="schedule").order_by("id")
    return list(entries.values_list("verb", "object_id", "result"))


def test_a_new_schedule_shows_what_was_sent_and_when_it_runs() -> None:
    shown = create()
    assert {key: shown[key] for key in BODY} == BODY
    assert (shown["catch_up"], shown["overlap"], shown["priority"]) == ("once", "enqueue", "normal")
    assert (shown["session_id"], shown["jitter_s"], shown["enabled"]) == (None, 0, True)
    assert (shown["last_run_at"], shown["last_job_id"], shown["paused"]) == (None, None, None)
    assert shown["next_run_at"] > shown["created_at"]
    assert audited() == [("create", "s", "applied")]


def test_without_an_agent_the_default_one_is_written_down() -> None:
    assert create(agent_name="")["agent_name"] == wiring.registry().default_name()


def test_the_same_schedule_again_is_the_same_and_another_of_its_name_is_a_conflict() -> None:
    first = create()
    again, made = services.schedule_create(caller=MINE, body=BODY)
    assert (again, made) == (first, False)
    with pytest.raises(ScheduleExists) as refusal:
        create(cron="0 7 * * *", task="other")
    assert set(refusal.value.fields) == {"cron", "task"}
    assert audited() == [("create", "s", "applied"), ("create", "s", "already"), ("create", "s", "conflict")]
    _, made = services.schedule_create(caller=THEIRS, body=BODY)
    assert made


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"cron": "0 25 * * *"}, "cron"),
        ({"cron": "0 0 31 2 *"}, "cron"),
        ({"cron": 5}, "cron"),
        ({"timezone": "Berlin"}, "timezone"),
        ({"timezone": "UTC\x00"}, "timezone"),
        ({"task": " "}, "task"),
        ({"name": "with space"}, "name"),
        ({"agent_name": "nobody-has-this"}, "agent_name"),
        ({"session_id": ""}, "session_id"),
        ({"payload": []}, "payload"),
        ({"priority": "urgent"}, "priority"),
        ({"catch_up": "none"}, "catch_up"),
        ({"overlap": "kill"}, "overlap"),
        ({"jitter_s": -1}, "jitter_s"),
        ({"jitter_s": 3601}, "jitter_s"),
        ({"jitter_s": float("nan")}, "jitter_s"),
        ({"enabled": "yes"}, "enabled"),
        ({"zone": "UTC"}, "zone"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_made(wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid) as refusal:
        create(**wrong)
    assert list(refusal.value.fields) == [field]
    assert not Schedule.objects.exists()


def test_one_that_is_made_switched_off_never_runs() -> None:
    shown = create(enabled=False)
    assert (shown["next_run_at"], shown["paused"]["by"]) == (None, "me")
    assert selectors.schedule_get(caller=MINE, name="s")["upcoming"] == []


def test_a_change_of_its_time_is_read_from_now_and_another_change_leaves_its_time() -> None:
    create()
    before = row()
    services.schedule_change(caller=MINE, name="s", change={"task": "another"})
    assert (row().task, row().next_run_at) == ("another", before.next_run_at)
    shown = services.schedule_change(caller=MINE, name="s", change={"cron": "*/5 * * * *", "timezone": "UTC"})
    assert row().next_run_at <= store_now() + timedelta(minutes=5)  # type: ignore[operator]
    assert (shown["cron"], shown["timezone"], shown["task"]) == ("*/5 * * * *", "UTC", "another")
    services.schedule_change(caller=MINE, name="s", change={"cron": "*/5 * * * *"})
    assert [result for _, _, result in audited()] == ["applied", "applied", "applied", "already"]


@pytest.mark.parametrize(
    ("change", "field"),
    [({"name": "other"}, "name"), ({"cron": "x"}, "cron"), ({"agent_name": "nobody-has-this"}, "agent_name")],
)
def test_a_wrong_change_changes_nothing(change: dict[str, Any], field: str) -> None:
    create()
    before = Schedule.objects.values().get()
    with pytest.raises(Invalid) as refusal:
        services.schedule_change(caller=MINE, name="s", change=change)
    assert list(refusal.value.fields) == [field]
    assert Schedule.objects.values().get() == before


def test_a_schedule_whose_agent_has_left_can_still_be_changed() -> None:
    create()
    Schedule.objects.update(agent_name="gone")
    assert services.schedule_change(caller=MINE, name="s", change={"task": "x"})["agent_name"] == "gone"


def test_pause_says_who_and_why_and_resume_goes_on_from_now() -> None:
    create()
    shown = services.schedule_pause(caller=MINE, name="s", reason="the vendor is down")
    assert (shown["enabled"], shown["next_run_at"]) == (False, None)
    assert (shown["paused"]["by"], shown["paused"]["reason"]) == ("me", "the vendor is down")
    assert services.schedule_pause(caller=MINE, name="s")["paused"]["reason"] == "the vendor is down"
    shown = services.schedule_resume(caller=MINE, name="s")
    assert (shown["enabled"], shown["paused"]) == (True, None)
    assert row().next_run_at > store_now()  # type: ignore[operator]
    assert services.schedule_resume(caller=MINE, name="s") == shown
    assert [entry[::2] for entry in audited()][1:] == [
        ("pause", "applied"),
        ("pause", "already"),
        ("resume", "applied"),
        ("resume", "already"),
    ]
    assert AuditEntry.objects.filter(verb="pause").first().reason == "the vendor is down"  # type: ignore[union-attr]


def test_a_run_on_demand_is_a_job_also_while_it_is_paused_and_a_repeated_key_finds_it() -> None:
    create(enabled=False, overlap="skip", session_id="s-1")
    handle, new = services.schedule_run(caller=MINE, name="s", key="k")
    again, repeated = services.schedule_run(caller=MINE, name="s", key="k")
    other, _ = services.schedule_run(caller=MINE, name="s")
    assert (new, repeated, again) == (True, False, handle)
    assert (handle["session_id"], handle["status"]) == ("s-1", "pending")
    assert [job.job_id for job in jobs(row())] == [handle["job_id"], other["job_id"]]
    assert row().last_job_id == other["job_id"]
    assert (history(row()), counts()) == ([("manual", 1), ("manual", 1)], {"manual": 2})
    assert [entry[2] for entry in audited()][1:] == ["applied", "already", "applied"]
    world.check()


def test_a_key_of_a_dispatch_is_no_key_of_a_run() -> None:
    create()
    handle, _ = services.schedule_run(caller=MINE, name="s", key="k")
    _, new = services.schedule_run(caller=THEIRS, name=_theirs(), key="k")
    assert new
    assert WorkItem.objects.exclude(job_id=handle["job_id"]).count() == 1


def _theirs() -> str:
    services.schedule_create(caller=THEIRS, body=BODY)
    return "s"


def test_a_run_that_the_queue_refuses_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    create()
    full = world.authority(max_depth=0)
    monkeypatch.setattr(wiring, "authority", lambda: full)
    with pytest.raises(QueueFull):
        services.schedule_run(caller=MINE, name="s")
    assert not WorkItem.objects.exists()
    assert not ScheduleRun.objects.exists()


def test_what_is_removed_is_gone_with_its_history_and_its_jobs_stay() -> None:
    create()
    services.schedule_run(caller=MINE, name="s")
    services.schedule_remove(caller=MINE, name="s")
    assert (Schedule.objects.count(), ScheduleRun.objects.count(), WorkItem.objects.count()) == (0, 0, 1)
    with pytest.raises(ScheduleNotFound):
        services.schedule_remove(caller=MINE, name="s")
    assert audited()[-2:] == [("remove", "s", "applied"), ("remove", "s", "not_found")]


ACTS: dict[str, Callable[..., object]] = {
    "pause": services.schedule_pause,
    "resume": services.schedule_resume,
    "run": services.schedule_run,
    "remove": services.schedule_remove,
    "change": lambda **named: services.schedule_change(change={"task": "mine now"}, **named),
}


@pytest.mark.parametrize("verb", ACTS)
def test_another_tenants_schedule_is_not_found_unchanged_and_audited(verb: str) -> None:
    create()
    before = Schedule.objects.values().get()
    with pytest.raises(ScheduleNotFound):
        ACTS[verb](caller=THEIRS, name="s")
    assert Schedule.objects.values().get() == before
    assert not WorkItem.objects.exists()
    assert audited()[1:] == [(verb, "s", "not_found")]
    assert AuditEntry.objects.get(verb=verb).tenant == "t2"


def test_a_platform_caller_acts_on_any_and_on_its_own_first() -> None:
    create()
    assert services.schedule_pause(caller=PLATFORM, name="s")["tenant"] == "t1"
    assert AuditEntry.objects.get(verb="pause").tenant == "t1"
    services.schedule_create(caller=PLATFORM, body=BODY)
    assert services.schedule_pause(caller=PLATFORM, name="s")["tenant"] == "ops"


def test_lists_hold_the_callers_own_in_pages() -> None:
    for name in ("a", "b", "c"):
        create(name=name)
    services.schedule_create(caller=THEIRS, body=BODY)
    page = selectors.schedule_list(caller=MINE, limit=2)
    rest = selectors.schedule_list(caller=MINE, limit=2, cursor=page["next_cursor"])
    assert [one["name"] for one in (*page["schedules"], *rest["schedules"])] == ["c", "b", "a"]
    assert rest["next_cursor"] is None
    assert len(selectors.schedule_list(caller=PLATFORM)["schedules"]) == 4


def test_a_schedule_tells_its_next_runs_and_what_became_of_the_last() -> None:
    create()
    handle, _ = services.schedule_run(caller=MINE, name="s")
    shown = selectors.schedule_get(caller=MINE, name="s")
    assert len(shown["upcoming"]) == 5
    assert shown["upcoming"] == sorted(set(shown["upcoming"]))
    assert shown["upcoming"][0] == shown["next_run_at"]
    (run,) = shown["runs"]
    assert (run["outcome"], run["job_id"], run["status"]) == ("manual", handle["job_id"], "pending")


def test_racing_callers_make_one_schedule_and_one_run() -> None:
    start, made, new = threading.Barrier(6), [], []

    def act() -> None:
        try:
            start.wait(30)
            made.append(services.schedule_create(caller=MINE, body=BODY)[1])
            new.append(services.schedule_run(caller=MINE, name="s", key="k")[1])
        finally:
            connection.close()

    threads = [threading.Thread(target=act) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (sorted(made), sorted(new)) == ([False] * 5 + [True], [False] * 5 + [True])
    assert WorkItem.objects.count() == 1
    world.check()
