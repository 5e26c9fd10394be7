"""The pages of the goals: how far each is, in agents' words that are shown and never run."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from dispatch.models import WorkItem
from sessions_app.models import AuditEntry, Goal, GoalIteration, Session
from tests.fleet import rows
from tests.fleet.test_console import HOSTILE, act, confirm, person, said, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

LIST = "admin:sessions_app_goal_changelist"
MOST_QUERIES = 15


def iterated(goal: Goal, count: int) -> Goal:
    """The goal with so many iterations, of which none passed."""
    verdict = {"by": "command", "passed": False, "output": HOSTILE, "exit_code": 7, "timed_out": False, "seconds": 1}
    GoalIteration.objects.bulk_create(
        [
            GoalIteration(
                work_item_id=goal.work_item_id,
                iteration=number,
                epoch=1,
                checkpoint_id=f"checkpoint-{number}",
                passed=False,
                validation=verdict,
                result_excerpt=HOSTILE,
                seconds=2.0,
                finished_at=timezone.now(),
            )
            for number in range(1, count + 1)
        ]
    )
    goal.iteration, goal.last_validation, goal.max_iterations = count, verdict, 99
    goal.constraints, goal.validation = {"note": HOSTILE, "max_seconds": 60}, {"command": ["sh", "-c", HOSTILE]}
    goal.save()
    return goal


def change(goal: Goal) -> str:
    return reverse("admin:sessions_app_goal_change", args=[goal.pk])


def test_the_page_of_a_goal_shows_what_it_is_and_each_iteration(client: Client) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    goal = iterated(rows.goal(rows.session("s-goal"), objective=HOSTILE), 3)
    with CaptureQueriesContext(connection) as queries:
        shown = text(client.get(change(goal)))
    assert len(queries) <= MOST_QUERIES
    assert HOSTILE not in shown
    assert shown.count("&lt;img src=x") == 1 + 2 + 3 * 2, "objective, constraints, validation; each output and result"
    assert "3 of 99" in shown
    assert "of 60 s" in shown
    assert shown.count("not passed") == 3
    assert reverse("admin:dispatch_workitem_change", args=[goal.work_item_id]) in shown
    assert reverse("admin:sessions_app_session_change", args=[goal.session_id]) in shown


def test_of_a_long_loop_the_newest_fifty_are_shown_and_the_others_counted(client: Client) -> None:
    person(client)
    goal = iterated(rows.goal(rows.session()), 53)
    shown = text(client.get(change(goal)))
    assert shown.count('<th scope="row">') == 50
    assert "3 earlier iterations are not shown" in shown


def test_a_goal_that_has_not_begun_says_so(client: Client) -> None:
    person(client)
    shown = text(client.get(change(rows.goal(rows.session()))))
    assert "No iteration has been committed yet." in shown
    assert "The agent&#x27;s own success." in shown or "The agent's own success." in shown


@pytest.mark.parametrize("status", ["ready", "running", "succeeded", "failed", "dead_letter", "cancelled"])
def test_the_list_shows_the_status_of_the_work_item_and_narrows_by_it(client: Client, status: str) -> None:
    person(client)
    goal, other = rows.goal(rows.session(), status=status), rows.goal(rows.session(), status="suspended")
    shown = text(client.get(reverse(LIST), {"state": status}))
    assert goal.job_id in shown
    assert other.job_id not in shown
    both = text(client.get(reverse(LIST)))
    assert goal.job_id in both
    assert other.job_id in both
    found = text(client.get(reverse(LIST), {"q": other.job_id}))
    assert goal.job_id not in found
    assert other.job_id in found


def test_anothers_goal_is_not_found(client: Client) -> None:
    person(client, group="fleet-admin", tenants=("t1",))
    theirs: Any = iterated(rows.goal(rows.session(tenant="t2")), 1)
    assert client.get(change(theirs)).status_code == 404
    assert theirs.job_id not in text(client.get(reverse(LIST)))


def status_of(goal: Goal) -> str:
    return WorkItem.objects.get(pk=goal.work_item_id).status


def test_a_goal_is_paused_resumed_cancelled_and_retried_as_its_job_and_session_are(client: Client) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    goal, theirs = rows.goal(rows.session("mine")), rows.goal(rows.session("theirs", tenant="t2"))
    for action, outcome, status, wish in (
        ("pause_goals", "Pause: 1 applied.", "ready", "pause"),
        ("resume_goals", "Resume: 1 applied.", "ready", "run"),
        ("cancel_goals", "Cancel: 1 done.", "cancelled", "run"),
        ("retry_goals", "Retry: 1 queued.", "ready", "run"),
    ):
        assert said(confirm(client, LIST, action, goal, reason="so")) == [outcome]
        assert (status_of(goal), Session.objects.get(session_id="mine").desired) == (status, wish), action
    job, session = goal.job_id, "mine"
    told = list(AuditEntry.objects.order_by("id").values_list("verb", "object_id", "reason"))
    assert told == [(v, o, "so") for v, o in (("pause", session), ("resume", session), ("cancel", job), ("retry", job))]
    assert act(client, LIST, "cancel_goals", theirs).status_code in (200, 404)
    assert status_of(theirs) == "ready"


def test_a_goal_that_has_ended_is_not_offered_to_be_paused_and_a_viewer_is_offered_nothing(client: Client) -> None:
    goal = rows.goal(rows.session(), status="succeeded")
    person(client, group="fleet-operator", tenants=("t1",))
    buttons = client.get(change(goal)).context["fleet_buttons"]
    assert not [button.action for button in buttons if button.applies]
    person(client, "vera", group="fleet-viewer", tenants=("t1",))
    assert client.get(change(goal)).context["fleet_buttons"] == []
    assert act(client, LIST, "cancel_goals", goal).status_code == 403
