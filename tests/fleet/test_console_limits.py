"""The page of limits: what runs against them, and who sets them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from dispatch.models import ClaimLimit
from sessions_app.models import AuditEntry
from tests.fleet import rows
from tests.fleet.test_console import act, person, said, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

PAGE = "admin:dispatch_claimlimit_changelist"
ADD = "admin:dispatch_claimlimit_add"


def send(client: Client, address: str = "", **fields: object) -> Any:
    sent = {"scope": "agent", "name": "echo", "reason": "quota", **fields}
    return client.post(address or reverse(ADD), sent)


def change(limit: ClaimLimit) -> str:
    return reverse("admin:dispatch_claimlimit_change", args=[limit.pk])


def test_a_platform_operator_sets_changes_and_removes_a_limit_and_each_is_audited(client: Client) -> None:
    user = person(client)
    assert send(client, max_running="4").status_code == 302
    limit = ClaimLimit.objects.get()
    assert (limit.scope, limit.name, limit.max_running, limit.rate_per_s, limit.set_by) == (
        "agent",
        "echo",
        4,
        None,
        "ann",
    )
    assert send(client, change(limit), max_running="2", rate_per_s="0.5", burst="3", reason="less").status_code == 302
    limit.refresh_from_db()
    assert (limit.max_running, limit.rate_per_s, limit.burst, limit.reason) == (2, 0.5, 3, "less")
    assert said(act(client, PAGE, "clear_limits", limit))[-1].startswith("Say why")
    assert said(act(client, PAGE, "clear_limits", limit, reason="over")) == ["Remove: 1 removed."]
    assert not ClaimLimit.objects.exists()
    told = AuditEntry.objects.order_by("id").values_list("verb", "object_id", "reason", "result")
    assert list(told) == [
        ("limit", "agent:echo", "quota", "applied"),
        ("limit", "agent:echo", "less", "applied"),
        ("unlimit", "agent:echo", "over", "applied"),
    ]
    assert LogEntry.objects.filter(user=user).count() == 3


def test_the_page_shows_what_runs_now_and_the_tokens_left(client: Client, django_assert_max_num_queries: Any) -> None:
    person(client)
    send(client, max_running="2", rate_per_s="0.001", burst="7")
    send(client, scope="tenant", name="t1", max_running="9")
    for name in ("one", "two"):
        rows.item(rows.session(name), status="running")
    rows.item(rows.session("three", tenant="t2"), status="running", agent_name="other")
    with django_assert_max_num_queries(15):
        shown = text(client.get(reverse(PAGE)))
    assert "2 of 2: full" in shown
    assert "7.0 of 7" in shown
    assert "2 of 9" in shown
    assert "Agent echo: 2 at once, 0.001 starts a second, burst 7" in shown
    assert "2 of 2: full" in text(client.get(change(ClaimLimit.objects.get(scope="agent"))))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, "or rate_per_s must be given"),
        ({"max_running": "0"}, "must be a whole number from 1"),
        ({"rate_per_s": "-1"}, "must be a number over 0"),
        ({"max_running": "1", "burst": "2"}, "goes with rate_per_s"),
        ({"max_running": "1", "name": "nobody"}, "must be an agent of this configuration"),
        ({"max_running": "1", "name": "no agent"}, "must be a name"),
        ({"max_running": "1", "reason": ""}, "This field is required"),
    ],
)
def test_a_wrong_limit_is_told_beside_its_field(client: Client, fields: dict[str, str], sentence: str) -> None:
    person(client)
    assert sentence in text(send(client, **fields))
    assert not ClaimLimit.objects.exists()


def test_a_tenants_people_see_what_concerns_them_and_set_nothing(client: Client) -> None:
    person(client)
    for scope, name in (("agent", "echo"), ("tenant", "t1"), ("tenant", "t2")):
        send(client, scope=scope, name=name, max_running="1")
    rows.item(rows.session("theirs", tenant="t2"), status="running")
    mine, theirs = ClaimLimit.objects.get(name="t1"), ClaimLimit.objects.get(name="t2")
    person(client, "bob", group="fleet-operator", tenants=("t1",))
    shown = text(client.get(reverse(PAGE)))
    assert "Agent echo" in shown
    assert "Tenant t1" in shown
    assert "Tenant t2" not in shown
    assert "1 of 1" not in shown, "what other tenants run of an agent is not theirs to see"
    assert "0 of 1" in shown
    assert "0 of 1" in text(client.get(change(mine)))
    assert client.get(change(theirs)).status_code == 404
    assert client.get(reverse(ADD)).status_code == 403
    assert send(client, max_running="3").status_code == 403
    assert send(client, change(mine), scope="tenant", name="t1", max_running="3").status_code == 403
    assert act(client, PAGE, "clear_limits", mine, reason="x").status_code == 403
    assert ClaimLimit.objects.filter(max_running=1).count() == 3
