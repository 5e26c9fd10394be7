"""Every address of the console, by who asks: nobody, viewer, operator, administrator, and another tenant's people."""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import unfold
from django.contrib import admin
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from dispatch.models import ClaimGate, ClaimLimit, KnownAgent, Schedule
from fleet.console import urls as console_urls
from fleet.console.base import FleetAdmin
from fleet.models import BulkOperation
from sessions_app.models import AuditEntry, Turn
from tests.fleet.test_console import LISTS, fleet, person

__all__ = ["fleet"]  # the fixture: two tenants with something of everything in each

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fleet_queue")]

WHO: dict[str, dict[str, Any]] = {
    "viewer": {"group": "fleet-viewer", "tenants": ("t1",)},
    "operator": {"group": "fleet-operator", "tenants": ("t1",)},
    "administrator": {"group": "fleet-admin", "tenants": ("t1",)},
    "of another tenant": {"group": "fleet-admin", "tenants": ("t3",)},
    "superuser": {},
}
ADMINISTRATOR, SUPERUSER = ("administrator", "of another tenant", "superuser"), ("superuser",)
OPERATOR = ("operator", *ADMINISTRATOR)
EVERYBODY = ("viewer", *OPERATOR)
OWN = tuple(who for who in EVERYBODY if who != "of another tenant")
# who may open what, where that is not everybody of a group
OPENS = {
    "admin:fleet_apikey_changelist": ADMINISTRATOR,
    "admin:fleet_apikey_add": ADMINISTRATOR,
    "admin:fleet_tenantmembership_changelist": SUPERUSER,
    "admin:fleet_tenantmembership_add": SUPERUSER,
    "admin:auth_user_changelist": SUPERUSER,
    "admin:auth_user_add": SUPERUSER,
    "admin:auth_group_changelist": SUPERUSER,
    "admin:auth_group_add": SUPERUSER,
    "admin:dispatch_claimgate_add": OPERATOR,
    "console:task": OPERATOR,
}
LIMITS_ADD = "admin:dispatch_claimlimit_add"  # for who sees every tenant alone
ADDS = (
    "dispatch_claimgate",
    "dispatch_claimlimit",
    "fleet_apikey",
    "fleet_tenantmembership",
    "auth_user",
    "auth_group",
)


def expected(name: str, who: str) -> bool:
    if name == LIMITS_ADD:
        return who == "superuser"
    return who in OPENS.get(name, EVERYBODY)


def pages() -> list[str]:
    return ["admin:index", *LISTS, "console:task", *(f"admin:{name}_add" for name in ADDS)]


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("name", pages())
def test_a_page_opens_for_whom_it_is(client: Client, name: str, who: str) -> None:
    person(client, **WHO[who])
    assert client.get(reverse(name)).status_code == (200 if expected(name, who) else 403)


@pytest.mark.parametrize("name", pages())
def test_no_page_opens_for_who_is_not_signed_in_or_in_no_group(client: Client, name: str) -> None:
    answer = client.get(reverse(name))
    assert answer.status_code == 302
    assert answer["Location"].startswith("/admin/login/")
    person(client, group="fleet-viewer").groups.clear()
    assert client.get(reverse(name)).status_code == (200 if name == "admin:index" else 403)


@pytest.fixture
def details(fleet: dict[str, Any]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """A page of one object of tenant t1, and who opens it. What belongs to no tenant is for everybody."""
    mine = fleet["t1"]
    gate = ClaimGate.objects.create(scope="tenant", name="t1", set_by="ann", set_at=mine["failed"].created_at)
    limit = ClaimLimit.objects.create(
        scope="agent", name="echo", max_running=1, refilled_at=gate.set_at, reason="r", set_by="ann", set_at=gate.set_at
    )
    agent = KnownAgent.objects.create(name="echo", first_seen=gate.set_at, last_seen=gate.set_at)
    operation = BulkOperation.objects.create(
        request_id="r", verb="pause", object_type="session", actor="zoe", tenant="t1", status="done",
        created_at=gate.set_at,
    )  # fmt: skip
    objects = [
        ("sessions_app_session", mine["session"], OWN),
        ("dispatch_workitem", mine["failed"], OWN),
        ("sessions_app_turn", Turn.objects.get(session=mine["session"]), OWN),
        ("sessions_app_auditentry", AuditEntry.objects.get(tenant="t1"), OWN),
        ("dispatch_schedule", Schedule.objects.get(tenant="t1"), OWN),
        ("dispatch_webhookdelivery", mine["callback"], OWN),
        ("dispatch_webhookendpoint", mine["callback"].watch.endpoint, OWN),
        ("dispatch_claimgate", gate, OWN),
        ("fleet_bulkoperation", operation, OWN),
        ("fleet_apikey", fleet["key"], ("administrator", "superuser")),
        ("dispatch_dispatchworker", fleet["worker"], EVERYBODY),
        ("dispatch_knownagent", agent, EVERYBODY),
        ("dispatch_claimlimit", limit, EVERYBODY),
    ]
    found = {name: (reverse(f"admin:{name}_change", args=[one.pk]), who) for name, one, who in objects}
    found["output"] = (reverse("admin:dispatch_workitem_output", args=[mine["failed"].pk]), OWN)
    return found


@pytest.mark.parametrize("who", WHO)
def test_an_object_opens_for_its_own_tenants_people_and_is_not_found_by_others(
    client: Client, details: dict[str, tuple[str, tuple[str, ...]]], who: str
) -> None:
    person(client, **WHO[who])
    for name, (address, opens) in details.items():
        status = client.get(address).status_code
        assert (status == 200) == (who in opens), (name, status)
        assert status in (200, 403, 404), (name, status)
        if who == "of another tenant" and who not in opens:
            assert status == 404, (name, "a refusal would tell that it is there")


def test_an_object_opens_for_nobody_else(client: Client, details: dict[str, tuple[str, tuple[str, ...]]]) -> None:
    for name, (address, _) in details.items():
        assert client.get(address).status_code == 302, name
    person(client, group="fleet-viewer").groups.clear()
    for name, (address, _) in details.items():
        assert client.get(address).status_code in (403, 404), name


def test_every_page_of_the_fleet_is_in_this_matrix() -> None:
    lists = {f"admin:{page.opts.app_label}_{page.opts.model_name}_changelist" for page in admin.site._registry.values()}
    own = {f"console:{pattern.name}" for pattern in console_urls.urlpatterns}
    assert lists | own <= set(pages()), "add the new page to tests.fleet.test_console.LISTS"


def test_no_address_of_the_admin_is_open_without_a_session(client: Client) -> None:
    """By the addresses themselves, whoever added them; those with a key in them are asked for with one of no object."""
    asked = 0
    for address in addresses(get_resolver(), ""):
        if not address.startswith("admin/") or address.startswith(("admin/login", "admin/logout", "admin/jsi18n")):
            continue
        answer = client.get(f"/{address}")
        assert answer.status_code in (302, 404, 405), (address, answer.status_code)
        if answer.status_code == 302:
            assert "/admin/login/" in answer["Location"] or answer["Location"].endswith("/change/"), address
        asked += 1
    assert asked > 60


def addresses(resolver: URLResolver, before: str) -> Iterator[str]:
    for pattern in resolver.url_patterns:
        route = before + getattr(pattern.pattern, "_route", "")
        if isinstance(pattern, URLResolver):
            yield from addresses(pattern, route)
        elif isinstance(pattern, URLPattern):
            yield route.replace("<path:object_id>", "1").replace("<id>", "1").replace("<int:pk>", "1")


def test_no_page_of_the_fleet_may_be_added_to_changed_or_deleted_from_by_hand(client: Client) -> None:
    person(client)
    for page in admin.site._registry.values():
        if isinstance(page, FleetAdmin):
            name = f"{page.opts.app_label}_{page.opts.model_name}"
            status = client.get(reverse(f"admin:{name}_add")).status_code
            assert status == (200 if name in ADDS else 403), name


# -- templates of others that ours stand in for ------------------------------------------------------------------------
ROOT = Path(__file__).resolve().parents[2] / "templates"
# what theirs were when ours were written, by their version
THEIRS = {
    "unfold/helpers/empty_results.html": {"0.91.0": "5f4727a37a99da76", "0.110.0": "830db82d60f52b85"},
    "admin/index.html": {"0.91.0": "9fdb849b7da18ccd", "0.110.0": "dd345254af4ffc9a"},
}


def test_templates_of_unfold_that_ours_replace_are_as_they_were() -> None:
    ours = {path.relative_to(ROOT).as_posix() for part in ("admin", "unfold") for path in (ROOT / part).rglob("*.html")}
    assert ours == set(THEIRS), "a template of others is replaced: note its digest here"
    version = importlib.metadata.version("django-unfold")
    for name, digests in THEIRS.items():
        theirs = Path(unfold.__file__).parent / "templates" / name
        digest = hashlib.sha256(theirs.read_bytes()).hexdigest()[:16]
        assert digests.get(version) == digest, (
            f"{name} of unfold {version} has the digest {digest}: look at what changed there, mend templates/{name} if "
            "it has to follow, and note the digest here."
        )
