"""The console's pages of access: keys are made and revoked there, people are not deleted."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from fleet.access import api_key_authenticate, api_key_create
from fleet.models import ApiKey, TenantMembership
from sessions_app.models import AuditEntry
from tests.fleet.test_console import FOR_ADMINISTRATORS, act, person, said, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]


def test_keys_and_people_are_for_administrators(client: Client) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    for page in FOR_ADMINISTRATORS:
        assert client.get(reverse(page)).status_code == 403, page


def test_an_administrator_revokes_a_key(client: Client) -> None:
    key, secret = api_key_create(name="ci", tenant="t1", scopes=["read"])
    person(client, group="fleet-admin", tenants=("t1",))
    page = "admin:fleet_apikey_changelist"
    assert secret not in text(client.get(reverse(page)))
    assert said(act(client, page, "revoke_keys", key)) == ["Revoke: 1 revoked, 0 already."]
    assert api_key_authenticate(secret) is None
    assert said(act(client, page, "revoke_keys", key)) == ["Revoke: 0 revoked, 1 already."]


def make_key(client: Client, **more: object) -> Any:
    sent = {"name": "ci", "tenant": "t1", "scopes": ["read"], "expires_days": "30", **more}
    return client.post(reverse("admin:fleet_apikey_add"), sent)


def test_an_administrator_makes_a_key_that_is_shown_once(client: Client) -> None:
    person(client, group="fleet-admin", tenants=("t1",))
    answer = make_key(client)
    secret = answer.context["text"]
    assert secret in text(answer)
    assert "no-store" in answer["Cache-Control"]
    caller = api_key_authenticate(secret)
    assert caller is not None
    assert (caller.tenant, sorted(caller.scopes), caller.platform) == ("t1", ["read"], False)
    key = ApiKey.objects.get()
    for page in ("admin:fleet_apikey_changelist", "admin:sessions_app_auditentry_changelist", "admin:index"):
        assert secret not in text(client.get(reverse(page))), page
    assert AuditEntry.objects.values_list("actor", "verb", "tenant", "object_id").get() == (
        "ann", "create", "t1", f"{key.pk}:{key.prefix}",
    )  # fmt: skip
    act(client, "admin:fleet_apikey_changelist", "revoke_keys", key)
    assert AuditEntry.objects.filter(verb="revoke", actor="ann").count() == 1


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"tenant": "t2"}, "A key is made in a tenant of one"),
        ({"platform": "on"}, "A platform key sees every tenant"),
        ({"scopes": []}, "This field is required"),
        ({"expires_days": "0"}, "must be 1 to"),
        ({"tenant": "t 1"}, "A key is made in a tenant of one"),
    ],
)
def test_a_key_that_may_not_be_is_told_beside_its_field(
    client: Client, fields: dict[str, object], sentence: str
) -> None:
    person(client, group="fleet-admin", tenants=("t1",))
    assert sentence in text(make_key(client, **fields))
    assert not ApiKey.objects.exists()


def test_an_operator_makes_no_key(client: Client) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    assert make_key(client).status_code == 403
    assert not ApiKey.objects.exists()


def test_a_superuser_gives_a_membership(client: Client) -> None:
    person(client)
    other = User.objects.create_user("bob", is_staff=True)
    answer = client.post(reverse("admin:fleet_tenantmembership_add"), {"user": other.pk, "tenant": "t1"})
    assert answer.status_code == 302
    assert TenantMembership.objects.get().user == other


def test_a_person_is_never_deleted(client: Client) -> None:
    user = person(client)
    assert client.post(reverse("admin:auth_user_delete", args=[user.pk]), {"post": "yes"}).status_code == 403


def test_keys_are_not_touched_by_looking(client: Client) -> None:
    person(client)
    key, _ = api_key_create(name="ci", tenant="t1", scopes=["read"])
    text(client.get(reverse("admin:fleet_apikey_change", args=[key.pk])))
    assert ApiKey.objects.get(pk=key.pk).last_used_at is None
