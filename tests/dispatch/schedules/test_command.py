"""`manage.py schedules`: what people read, what scripts read, and the exit codes."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from dispatch import wiring
from dispatch.models import Schedule, WorkItem
from sessions_app.models import AuditEntry
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

ADD = ("add", "digest", "--cron", "0 6 * * *", "--timezone", "Europe/Berlin", "--task", "write", "--agent-name", "echo")


def command(*arguments: str) -> tuple[int, str, str]:
    """Exit code, output, errors."""
    out, err = io.StringIO(), io.StringIO()
    try:
        call_command("schedules", *arguments, stdout=out, stderr=err)
    except SystemExit as stop:
        return int(str(stop.code)), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def read(*arguments: str) -> Any:
    code, out, err = command(*arguments, "--json")
    assert code == 0, err
    return json.loads(out)


def test_a_schedule_is_made_listed_shown_steered_and_removed() -> None:
    assert command("list")[:2] == (0, "No schedule.\n")
    code, out, _ = command(*ADD, "--tenant", "t1", "--jitter-s", "30", "--overlap", "skip", "--payload", '{"n": 1}')
    assert (code, out.startswith("schedule digest of tenant t1: next run ")) == (0, True)
    made = Schedule.objects.get()
    assert (made.tenant, made.jitter_s, made.overlap, made.payload) == ("t1", 30, "skip", {"n": 1})

    _, out, _ = command("list")
    head, line = out.splitlines()
    assert head.split() == [
        "TENANT",
        "NAME",
        "CRON",
        "ZONE",
        "AGENT",
        "STATE",
        "NEXT",
        "RUN",
        "LAST",
        "RUN",
        "LAST",
        "JOB",
    ]
    assert line.startswith("t1      digest  0 6 * * *  Europe/Berlin  echo   on ")

    code, out, _ = command("run", "digest", "--idempotency-key", "k")
    job_id = WorkItem.objects.get().job_id
    assert (code, out) == (0, f"job {job_id}\n")
    assert command("run", "digest", "--idempotency-key", "k")[1] == f"job {job_id} (this key's, dispatched before)\n"

    assert command("pause", "digest", "--reason", "vendor down")[:2] == (0, "schedule digest of tenant t1: off\n")
    _, out, _ = command("show", "digest")
    assert "off: vendor down" in out
    assert "none: it is off" in out
    assert f"manual  {job_id}  pending" in out
    assert command("resume", "digest")[0] == 0
    assert " 06:00:" in command("show", "digest")[1]

    assert command("remove", "digest")[:2] == (0, "schedule digest removed\n")
    assert not Schedule.objects.exists()
    entries = AuditEntry.objects.filter(object_type="schedule").order_by("id").values_list("verb", "actor_kind")
    assert list(entries) == [(verb, "system") for verb in ("create", "run", "run", "pause", "resume", "remove")]


def test_scripts_read_what_rest_answers() -> None:
    made = read(*ADD, "--tenant", "t1", "--disabled")
    assert (made["name"], made["enabled"], made["next_run_at"]) == ("digest", False, None)
    assert read("list") == {"schedules": [made]}
    assert read("list", "--tenant", "t2") == {"schedules": []}
    assert read("show", "digest")["upcoming"] == []
    assert read("run", "digest")["dispatch"] == "queued"
    assert read("remove", "digest") == {"name": "digest", "removed": True}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show", "nope"), "Schedule nope not found"),
        (("pause", "digest", "--tenant", "t2"), "Schedule digest not found"),
        (("pause", "digest", "--reason", "x" * 501), "reason must be"),
        ((*ADD, "--tenant", "t1", "--priority", "high"), "exists already"),
        ((*ADD,), "--tenant is missing"),
        (("add", "x", "--tenant", "t1", "--cron", "61 * * * *", "--task", "y"), "cron must be"),
        (("add", "x", "--tenant", "t1", "--cron", "1 * * * *", "--task", "y", "--payload", "[1"), "--payload must be"),
        (("add", "x", "--tenant", "t1", "--cron", "1 * * * *", "--task", "y", "--timezone", "M"), "timezone must be"),
    ],
)
def test_a_refusal_is_one_sentence_and_exit_1(arguments: tuple[str, ...], says: str) -> None:
    assert command(*ADD, "--tenant", "t1")[0] == 0
    code, out, err = command(*arguments)
    assert (code, out) == (1, "")
    assert says in err
    assert len(err.splitlines()) == 1
    assert Schedule.objects.filter(enabled=True).count() == 1


def test_a_name_that_two_tenants_have_needs_the_tenant() -> None:
    for tenant in ("t1", "t2"):
        assert command(*ADD, "--tenant", tenant)[0] == 0
    code, _, err = command("remove", "digest")
    assert (code, "t1, t2 have a schedule of this name" in err) == (1, True)
    assert command("remove", "digest", "--tenant", "t2")[0] == 0
    assert Schedule.objects.get().tenant == "t1"


def test_a_full_queue_is_exit_1_and_a_store_that_is_away_exit_2(monkeypatch: pytest.MonkeyPatch) -> None:
    command(*ADD, "--tenant", "t1")
    full = world.authority(max_depth=0)
    monkeypatch.setattr(wiring, "authority", lambda: full)
    assert command("run", "digest")[0] == 1
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE schedules RENAME TO schedules_gone")
    try:
        code, _, err = command("list")
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE schedules_gone RENAME TO schedules")
    assert (code, len(err.splitlines())) == (2, 1)


def test_wrong_words_are_refused_by_the_command_line() -> None:
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("schedules", "start", "x")
