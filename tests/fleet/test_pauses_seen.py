"""A pause of claiming is seen wherever the fleet is read, and is nobody's fault."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils import timezone

from dispatch.models import ClaimGate
from tests.fleet import rows

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]


def shut(scope: str, name: str = "") -> None:
    ClaimGate.objects.create(scope=scope, name=name, set_at=timezone.now(), set_by="ops", reason="deploy")


def notes(client: Client, tenant: str, page: str = "health", *, platform: bool = False) -> list[str]:
    answer = client.get(f"/api/fleet/{page}", headers=rows.key(tenant, "read", platform=platform))
    assert answer.status_code == 200, "a pause does not make the evidence unhealthy"
    return list(answer.json()["evidence"]["dependencies"]["control_store"]["diagnostics"])


@pytest.mark.parametrize("page", ["health", "topology", "autoscale"])
def test_the_evidence_notes_it_by_scope_and_stays_healthy(client: Client, page: str) -> None:
    shut("agent", "echo")
    shut("agent", "other")
    shut("fleet")
    assert notes(client, "t1", page) == ["claiming_paused:agent", "claiming_paused:fleet"]


def test_another_tenants_pause_is_not_told(client: Client) -> None:
    shut("tenant", "t2")
    assert notes(client, "t1") == []
    assert notes(client, "t2") == ["claiming_paused:tenant"]
    assert notes(client, "ops", platform=True) == ["claiming_paused:tenant"]


@pytest.mark.parametrize(
    ("scope", "name", "left"),
    [
        ("fleet", "", 0),
        ("kind", "orchestrator_task", 0),
        ("kind", "goal_loop", 3),
        ("agent", "echo", 1),
        ("tenant", "t1", 1),
        ("tenant", "t2", 2),
    ],
)
def test_what_is_held_asks_for_no_worker(client: Client, scope: str, name: str, left: int) -> None:
    rows.item(rows.session(tenant="t1", status="active"))
    rows.item(rows.session(tenant="t1", status="active"), agent_name="other")
    rows.item(rows.session(tenant="t2", status="active"))
    rows.converge()
    shut(scope, name)
    answer = client.get("/api/fleet/autoscale?capacity=1", headers=rows.key("ops", "read", platform=True)).json()
    assert (answer["claimable"], answer["desired"]) == (left, left)
    assert (answer["oldest_ready_s"] is None) == (left == 0)


def test_pauses_are_counted_by_scope(client: Client) -> None:
    shut("agent", "echo")
    shut("agent", "other")
    scraped = client.get("/metrics", headers=rows.key("ops", "read", platform=True)).content.decode().splitlines()
    name = "agent_utilities_dispatch_claim_gates"
    assert f'{name}{{scope="agent"}} 2.0' in scraped
    assert f'{name}{{scope="fleet"}} 0.0' in scraped
