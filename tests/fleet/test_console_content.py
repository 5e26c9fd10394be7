"""Who may not read what turns say sees that it is there, and how long it is, on every page and nowhere the text."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dispatch.models import Outcome, OutputChunk, Question, WorkItemEvent
from sessions_app.models import GoalIteration
from tests.fleet import rows
from tests.fleet.test_console import person, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

SECRET = "the patient's name is Ada"
HIDDEN = f"hidden: {len(SECRET)} characters, needs view_turn_content"


@pytest.fixture
def pages() -> dict[str, str]:
    """Every page that would show a text of a turn, each text with the secret in it."""
    session = rows.session("s", state={"note": SECRET}, metadata={"labels": {"about": SECRET}})
    failed = rows.failed_item(session, message=SECRET, task=SECRET, payload={"note": SECRET})
    ended = rows.item(session, status="succeeded", task=SECRET)
    Outcome.objects.create(
        work_item=ended, epoch=1, status="succeeded", result={"text": SECRET}, created_at=timezone.now()
    )
    WorkItemEvent.objects.create(
        work_item=failed, at=timezone.now(), event="retry", to_status="ready", reason=f"agent_error: {SECRET}"
    )
    WorkItemEvent.objects.create(work_item=failed, at=timezone.now(), event="lost", reason="worker_lost")
    asking = rows.item(rows.session("asks", status="needs_input"), status="suspended", suspended_for="input")
    Question.objects.create(
        work_item=asking, session=asking.session, epoch=1, question=SECRET, choices=[SECRET], asked_at=timezone.now()
    )
    talking = rows.item(rows.session("talks"), status="running")
    OutputChunk.objects.create(work_item=talking, epoch=1, kind="text", data={"text": SECRET}, at=timezone.now())
    goal = rows.goal(rows.session("aims"), objective=SECRET, constraints=[SECRET], validation={"check": SECRET})
    GoalIteration.objects.create(
        work_item_id=goal.work_item_id,
        iteration=1,
        epoch=1,
        checkpoint_id="c-1",
        passed=False,
        validation={"output": SECRET},
        result_excerpt=SECRET,
        seconds=1.0,
        finished_at=timezone.now(),
    )
    schedule = rows.schedule("nightly", task=SECRET, payload={"note": SECRET})
    rows.converge()
    item = "admin:dispatch_workitem_change"
    return {
        "fleet": reverse("admin:index"),
        "queue": reverse("console:queue"),
        "health": reverse("console:health"),
        "session": reverse("admin:sessions_app_session_change", args=[session.pk]),
        "question": reverse("admin:sessions_app_session_change", args=[asking.session_id]),
        "failed": reverse(item, args=[failed.pk]),
        "ended": reverse(item, args=[ended.pk]),
        "talking": reverse(item, args=[talking.pk]),
        "output": reverse("admin:dispatch_workitem_output", args=[talking.pk]),
        "goal": reverse("admin:sessions_app_goal_change", args=[goal.pk]),
        "goals": reverse("admin:sessions_app_goal_changelist"),
        "schedule": reverse("admin:dispatch_schedule_change", args=[schedule.pk]),
        "sessions": reverse("admin:sessions_app_session_changelist"),
        "items": reverse("admin:dispatch_workitem_changelist"),
        "schedules": reverse("admin:dispatch_schedule_changelist"),
    }


TELLING = ("fleet", "session", "question", "failed", "ended", "talking", "output", "goal", "goals", "schedule")


def plain(answer: Any) -> str:
    return text(answer).replace("&#x27;", "'").replace("\\u0027", "'")


def test_a_viewer_reads_no_content_and_sees_how_long_it_is(client: Client, pages: dict[str, str]) -> None:
    person(client, group="fleet-viewer", tenants=("t1",))
    for name, address in pages.items():
        shown = plain(client.get(address))
        assert SECRET not in shown, name
        assert ("view_turn_content" in shown) == (name in TELLING), name
    shown = plain(client.get(pages["failed"]))
    assert shown.count(HIDDEN) == 4, "the task, the error, and the reasons of two events"
    assert f"agent_error: {HIDDEN}" in shown
    assert "worker_lost" in shown, "a code is for everybody"
    assert "hidden: 1 pieces" in plain(client.get(pages["talking"]))


@pytest.mark.parametrize("group", ["fleet-operator", "fleet-admin"])
def test_operators_and_administrators_read_it(client: Client, pages: dict[str, str], group: str) -> None:
    person(client, group=group, tenants=("t1",))
    for name in TELLING:
        assert SECRET in plain(client.get(pages[name])), name


def test_the_right_can_be_given_to_a_person_or_a_group_and_taken_from_one(
    client: Client, pages: dict[str, str]
) -> None:
    right = Permission.objects.get(codename="view_turn_content", content_type__app_label="fleet")
    user = person(client, group="fleet-viewer", tenants=("t1",))
    user.user_permissions.add(right)
    assert SECRET in plain(client.get(pages["failed"]))
    user.user_permissions.clear()
    assert SECRET not in plain(client.get(pages["failed"]))
    own = Group.objects.create(name="support")
    own.permissions.add(right)
    user.groups.add(own)
    assert SECRET in plain(client.get(pages["failed"]))
    Group.objects.get(name="fleet-operator").permissions.remove(right)
    person(client, "olga", group="fleet-operator", tenants=("t1",))
    assert SECRET not in plain(client.get(pages["failed"]))


def test_the_right_alone_opens_no_page(client: Client, pages: dict[str, str]) -> None:
    user = User.objects.create_user("eve", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="view_turn_content"))
    client.force_login(user)
    assert client.get(pages["failed"]).status_code == 404
    assert client.get(pages["items"]).status_code == 403


def test_what_is_empty_is_not_called_hidden(client: Client) -> None:
    item = rows.item(rows.session("s"))
    person(client, group="fleet-viewer", tenants=("t1",))
    shown = text(client.get(reverse("admin:dispatch_workitem_change", args=[item.pk])))
    assert shown.count("hidden:") == 1, "the task alone: payload and output are empty"


def test_what_stands_under_the_name_of_a_secret_is_masked_however_deep(client: Client) -> None:
    person(client)
    payload = {
        "password": "p1", "nested": [{"api_key": "p2", "GITHUB_TOKEN": "p3", "tokens": 12, "note": "kept"}],
        "token": "", "secretary": "kept too", "client-secret": {"a": "p4"},
    }  # fmt: skip
    item = rows.item(rows.session(), payload=payload)
    shown = text(client.get(reverse("admin:dispatch_workitem_change", args=[item.pk])))
    for secret in ("p1", "p2", "p3", "p4"):
        assert f"&quot;{secret}&quot;" not in shown
    for kept in ("12", "&quot;kept&quot;", "&quot;kept too&quot;", "&quot;(hidden)&quot;"):
        assert kept in shown
