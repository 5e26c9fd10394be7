"""Dispatching from the console, and following what a turn says."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import ADDITION, LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dispatch.models import KnownAgent, OutputChunk, WorkItem
from fleet.console import output
from tests.fleet import rows
from tests.fleet.test_console import HOSTILE, person, said, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

TASK = "console:task"


def send(client: Client, **more: str) -> Any:
    """Open the form and send it, as it is or with other fields."""
    page = client.get(reverse(TASK)).context["page"]
    data = {
        "request_id": page.request_id,
        "tenant": "t1",
        "agent_name": "echo",
        "session_id": "",
        "priority": "high",
        "task": "Say hello\r\nto everybody",
        **more,
    }
    return client.post(reverse(TASK), data, follow=True)


def test_an_operator_dispatches_and_is_led_to_the_job(client: Client) -> None:
    user = person(client, group="fleet-operator", tenants=("t1", "t2"))
    answer = send(client, session_id="greetings")
    assert said(answer) == ["Dispatched. This page follows it."]
    item = WorkItem.objects.select_related("session").get()
    assert answer.redirect_chain[-1][0] == reverse("admin:dispatch_workitem_change", args=[item.pk])
    assert (item.tenant, item.agent_name, item.session.session_id) == ("t1", "echo", "greetings")
    assert (item.task, item.priority, item.status) == ("Say hello\nto everybody", 1, "ready")
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id, entry.action_flag) == (user, str(item.pk), ADDITION)


def test_a_form_sent_twice_makes_one_job(client: Client) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    send(client, request_id="0123abc")
    answer = send(client, request_id="0123abc")
    assert said(answer) == ["This was dispatched before: here is its job."]
    assert WorkItem.objects.count() == 1
    assert LogEntry.objects.count() == 1


def test_a_form_sent_again_with_another_task_is_refused(client: Client) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    send(client, request_id="0123abc")
    answer = send(client, request_id="0123abc", task="something else")
    assert answer.status_code == 400
    assert "Differs from the first request with this key" in answer.content.decode()
    assert WorkItem.objects.count() == 1


def test_request_ids_of_two_people_never_meet(client: Client) -> None:
    for name in ("ann", "bob"):
        person(client, name, group="fleet-operator", tenants=("t1",))
        assert said(send(client, request_id="same")) == ["Dispatched. This page follows it."]
    assert WorkItem.objects.count() == 2


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("agent_name", "nobody", "Must be an agent of this configuration or one that a worker has announced"),
        ("task", "   ", "Must be a non-empty text of at most 256 KiB"),
        ("session_id", "no spaces please", "Must be the name of a session"),
        ("priority", "urgent", "critical, high, normal or low"),
        ("task", "a\0b", ""),
    ],
)
def test_what_is_wrong_is_told_beside_its_field_and_the_form_keeps_what_was_written(
    client: Client, field: str, value: str, words: str
) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    answer = send(client, **{"task": "keep me", field: value})
    assert answer.status_code == 400
    assert words in answer.content.decode()
    assert field in answer.context["page"].problems
    if field != "task":
        assert "keep me" in answer.content.decode()
    assert not WorkItem.objects.exists()


def test_nobody_dispatches_for_a_tenant_that_they_do_not_see(client: Client) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    assert send(client, tenant="t2").status_code == 403
    assert not WorkItem.objects.exists()


def test_who_sees_every_tenant_names_one(client: Client) -> None:
    person(client)
    assert send(client, tenant="acme").status_code == 200
    assert WorkItem.objects.get().tenant == "acme"
    for wrong in ("", "no spaces"):
        answer = send(client, tenant=wrong)
        assert answer.context["page"].problems == {"tenant": "must be the name of a tenant"}


def test_a_viewer_may_not_dispatch_and_is_not_offered_it(client: Client) -> None:
    person(client, group="fleet-viewer", tenants=("t1",))
    assert client.get(reverse(TASK)).status_code == 403
    assert client.post(reverse(TASK), {"request_id": "a", "tenant": "t1", "task": "x"}).status_code == 403
    assert "Dispatch a task" not in text(client.get(reverse("admin:index")))
    assert not WorkItem.objects.exists()


def test_a_dispatch_without_the_csrf_token_is_refused() -> None:
    client = Client(enforce_csrf_checks=True)
    person(client)
    assert client.post(reverse(TASK), {"request_id": "a", "tenant": "t1", "task": "x"}).status_code == 403
    assert not WorkItem.objects.exists()


def test_the_form_tells_which_agents_no_live_worker_has(client: Client) -> None:
    person(client)
    for name in ("served", "forgotten"):
        KnownAgent.objects.create(name=name, first_seen=timezone.now(), last_seen=timezone.now())
    rows.worker(agents=["served"])
    words = {agent.value: agent.words for agent in client.get(reverse(TASK)).context["page"].agents}
    assert words["served"] == "served"
    assert words["forgotten"] == "forgotten – no live worker"
    assert words[""] == "the default agent, echo"


# -- output ------------------------------------------------------------------------------------------------------------
def piece(item: WorkItem, data: Any, *, epoch: int = 1, kind: str = "text") -> OutputChunk:
    data = {"text": data} if kind == "text" else data
    return OutputChunk.objects.create(work_item=item, epoch=epoch, kind=kind, data=data, at=timezone.now())


@pytest.fixture
def talking() -> WorkItem:
    return rows.item(rows.session("s"), status="running")


def news(client: Client, item: WorkItem, after: int) -> Any:
    answer = client.get(reverse("admin:dispatch_workitem_output", args=[item.pk]), {"after": after})
    assert answer.status_code == 200
    assert "no-store" in answer["Cache-Control"]
    return answer.json()


def test_output_goes_on_after_the_last_piece_that_was_seen(client: Client, talking: WorkItem) -> None:
    person(client)
    piece(talking, "one ")
    shown = client.get(reverse("admin:dispatch_workitem_change", args=[talking.pk])).context["fleet_output"]
    assert shown.text == "one "
    piece(talking, "two\n")
    last = piece(talking, {"done": 2, "total": 18, "message": "topics"}, kind="progress")
    seen = news(client, talking, shown.last)
    assert seen == {
        "text": "two\n[2 of 18: topics]\n",
        "last": last.pk,
        "more": False,
        "note": "running, followed while this page is open",
    }
    assert news(client, talking, last.pk)["text"] == ""
    assert news(client, talking, last.pk)["last"] == last.pk


def test_a_long_output_comes_in_parts_none_left_out_or_repeated(
    client: Client, talking: WorkItem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "PIECES", 4)
    person(client)
    for n in range(10):
        piece(talking, f"{n},")
    page = client.get(reverse("admin:dispatch_workitem_change", args=[talking.pk])).context["fleet_output"]
    assert page.text == "[earlier output left out]\n6,7,8,9,"
    whole, last, more, asked = "", 0, True, 0
    while more:
        seen = news(client, talking, last)
        whole, last, more, asked = whole + seen["text"], seen["last"], seen["more"], asked + 1
    assert whole == "0,1,2,3,4,5,6,7,8,9,"
    assert asked == 3


def test_a_new_run_is_told_apart_from_the_one_before(client: Client, talking: WorkItem) -> None:
    person(client)
    first = piece(talking, "before the crash")
    piece(talking, "again\n", epoch=2)
    assert news(client, talking, 0)["text"] == "before the crash\n[a new run, epoch 2]\nagain\n"
    assert news(client, talking, first.pk)["text"] == "[a new run, epoch 2]\nagain\n"


def test_hostile_output_is_text_in_the_page_and_json_outside_it(client: Client, talking: WorkItem) -> None:
    person(client)
    piece(talking, HOSTILE)
    shown = text(client.get(reverse("admin:dispatch_workitem_change", args=[talking.pk])))
    assert "<img src=x" not in shown
    assert "&lt;img src=x" in shown
    answer = client.get(reverse("admin:dispatch_workitem_output", args=[talking.pk]))
    assert answer["Content-Type"] == "application/json"
    assert answer.json()["text"] == HOSTILE


def test_output_of_another_tenant_is_not_found_and_numbers_are_checked(client: Client, talking: WorkItem) -> None:
    person(client, group="fleet-operator", tenants=("t2",))
    address = reverse("admin:dispatch_workitem_output", args=[talking.pk])
    assert client.get(address).status_code == 404
    person(client, "root")
    assert client.post(address).status_code == 405
    for wrong in ("x", "-1", "9" * 30, "١"):
        assert client.get(address, {"after": wrong}).status_code == 400
