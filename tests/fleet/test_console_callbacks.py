"""The pages of callbacks: what was told and to whom, sending again, and that an address tells no secret."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dispatch.models import WebhookDelivery
from fleet.models import BulkOperation
from sessions_app.models import AuditEntry
from tests.fleet import rows
from tests.fleet.test_console import confirm, person, said, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

CALLBACKS = "admin:dispatch_webhookdelivery_changelist"
ENDPOINTS = "admin:dispatch_webhookendpoint_changelist"


def done(tenant: str = "t1", **more: object) -> WebhookDelivery:
    return rows.callback(rows.item(rows.session(tenant=tenant), status="succeeded", tenant=tenant), **more)  # type: ignore[arg-type]


def page_of(delivery: WebhookDelivery) -> str:
    return reverse("admin:dispatch_webhookdelivery_change", args=[delivery.pk])


def test_the_list_and_the_page_say_what_came_of_it_and_leave_out_the_query_of_an_address(client: Client) -> None:
    person(client, group="fleet-viewer", tenants=("t1",))
    dead = done(url="https://ci.example.org/in?token=secret", last_error="TLS failed", tries=16)
    done("t2", url="https://other.example.org/")
    for address in (reverse(CALLBACKS), page_of(dead)):
        shown = text(client.get(address))
        for words in (dead.delivery_id, "job.succeeded", "TLS failed", dead.work_item.job_id):
            assert words in shown, (address, words)
        assert "https://ci.example.org/in" in shown
        assert "token=secret" not in shown
        assert "other.example.org" not in shown
    assert "Nobody took it" in text(client.get(page_of(dead)))
    shown = text(client.get(reverse("admin:dispatch_workitem_change", args=[dead.work_item_id])))
    assert page_of(dead) in shown
    assert "token=secret" not in shown


def test_a_list_is_narrowed_by_state_and_found_by_the_exact_id_of_a_callback_or_a_job(client: Client) -> None:
    person(client)
    dead, taken = done(), done(state="delivered", last_status=204, delivered_at=timezone.now())
    for asked, there, away in (
        ({"state": "dead"}, dead, taken),
        ({"state": "delivered"}, taken, dead),
        ({"q": dead.delivery_id}, dead, taken),
        ({"q": taken.work_item.job_id}, taken, dead),
    ):
        shown = text(client.get(reverse(CALLBACKS), asked))
        assert page_of(there) in shown, asked
        assert page_of(away) not in shown, asked


def test_an_operator_sends_again_what_nobody_took_and_it_is_audited(client: Client) -> None:
    user = person(client, group="fleet-operator", tenants=("t1",))
    dead, other = done(tries=16), done("t2")
    answer = confirm(client, CALLBACKS, "send_again", dead, reason="the receiver is back")
    assert said(answer) == ["Send again: 1 applied."]
    dead.refresh_from_db()
    assert (dead.state, dead.tries) == ("pending", 0)
    assert dead.due_at is not None
    entry = AuditEntry.objects.get()
    assert (entry.actor, entry.verb, entry.object_id) == (user.username, "redeliver", dead.work_item.job_id)
    assert entry.reason == f"{dead.delivery_id}: the receiver is back"
    assert BulkOperation.objects.get().counts == {"applied": 1}
    assert LogEntry.objects.filter(object_id=str(dead.pk)).count() == 1
    client.post(reverse(CALLBACKS), {"action": "send_again", "_selected_action": [str(other.pk)]})
    other.refresh_from_db()
    assert other.state == "dead"


def test_what_was_taken_meanwhile_is_not_sent_again(client: Client) -> None:
    person(client)
    dead = done(tries=16)
    asked = client.post(reverse(CALLBACKS), {"action": "send_again", "_selected_action": [str(dead.pk)]})
    form = asked.context["page"]
    WebhookDelivery.objects.filter(pk=dead.pk).update(state="delivered", delivered_at=timezone.now(), tries=1)
    data = {
        "action": "send_again", "confirmed": "yes", "_selected_action": "0", "targets": form.targets,
        "request_id": form.request_id, "type_this": form.type_this, "typed": form.type_this, "reason": "because",
    }  # fmt: skip
    answer = client.post(reverse(CALLBACKS), data, follow=True)
    assert said(answer) == ["Send again: 1 changed."]
    dead.refresh_from_db()
    assert dead.state == "delivered"


def test_a_viewer_is_offered_nothing_and_may_do_nothing(client: Client) -> None:
    person(client, group="fleet-viewer", tenants=("t1",))
    dead = done()
    assert "Send again" not in text(client.get(page_of(dead)))
    answer = client.post(reverse(CALLBACKS), {"action": "send_again", "_selected_action": [str(dead.pk)]})
    assert answer.status_code == 403
    dead.refresh_from_db()
    assert dead.state == "dead"


def test_endpoints_are_those_of_the_readers_tenants_and_show_no_secret(client: Client) -> None:
    person(client, group="fleet-viewer", tenants=("t1",))
    mine = done(url="https://ci.example.org/").watch.endpoint
    mine.salt = "a-salt-that-nobody-sees"
    mine.save()
    done("t2", url="https://other.example.org/")
    shown = text(client.get(reverse(ENDPOINTS)))
    assert "https://ci.example.org/" in shown
    assert "other.example.org" not in shown
    page = text(client.get(reverse("admin:dispatch_webhookendpoint_change", args=[mine.pk])))
    assert mine.salt not in shown + page


def test_the_first_page_tells_of_callbacks_that_nobody_took_for_a_day(client: Client) -> None:
    person(client, group="fleet-viewer", tenants=("t1",))
    done(age_s=2 * 3600)
    done(age_s=25 * 3600)
    done("t2")
    rows.converge()
    shown = text(client.get(reverse("admin:index")))
    assert "1 callback that nobody took, the oldest made 2 h ago" in shown
    assert f"{reverse(CALLBACKS)}?state=dead" in shown
