"""What the console steers: draining workers, pauses of claiming."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from dispatch.models import ClaimGate, DispatchWorker
from sessions_app.models import AuditEntry
from tests.fleet import rows
from tests.fleet.test_console import act, person, said, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

WORKERS = "admin:dispatch_dispatchworker_changelist"
GATES = "admin:dispatch_claimgate_changelist"
ADD = "admin:dispatch_claimgate_add"


def shut(client: Client, scope: str, name: str = "", reason: str = "deploy") -> Any:
    return client.post(reverse(ADD), {"scope": scope, "name": name, "reason": reason})


def audited() -> list[tuple[str, str, str, str]]:
    told = AuditEntry.objects.order_by("id").values_list("actor_kind", "verb", "object_id", "reason")
    return list(told)


def test_a_platform_operator_drains_a_worker(client: Client) -> None:
    person(client)
    worker = rows.worker()
    assert said(act(client, WORKERS, "drain_workers", worker, reason="new kernel")) == ["Drain: 1 draining."]
    assert DispatchWorker.objects.get().draining is True
    assert audited() == [("staff", "drain", worker.worker_id, "new kernel")]
    assert LogEntry.objects.get().get_change_message() == "Drain (new kernel)"
    assert "draining" in text(client.get(reverse(WORKERS)))


def test_a_tenants_operator_is_not_offered_to_drain(client: Client) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    worker = rows.worker()
    assert "drain_workers" not in text(client.get(reverse(WORKERS)))
    assert act(client, WORKERS, "drain_workers", worker).status_code == 403
    assert DispatchWorker.objects.get().draining is False


def test_an_operator_of_every_tenant_needs_no_superuser_at_night(client: Client) -> None:
    worker = rows.worker()
    rows.session("theirs", tenant="t9")
    person(client, group="fleet-operator", tenants=("*",))
    assert said(act(client, WORKERS, "drain_workers", worker, reason="new kernel")) == ["Drain: 1 draining."]
    assert shut(client, "fleet", reason="the vendor burns").status_code == 302
    assert "theirs" in text(client.get(reverse("admin:sessions_app_session_changelist")))
    assert [entry[1:3] for entry in audited()] == [("drain", worker.worker_id), ("shut", "fleet")]


def test_the_pages_lead_to_the_form_that_pauses_filled_in_for_who_may(client: Client) -> None:
    rows.item(rows.session())
    index, queue = reverse("admin:index"), reverse("console:queue")
    fleet_form, agent_form = (f"{reverse(ADD)}?scope={rest}" for rest in ("fleet&amp;name=", "agent&amp;name=echo"))
    person(client, "bob", group="fleet-operator", tenants=("t1",))
    assert fleet_form not in text(client.get(index))
    assert agent_form not in text(client.get(queue))
    person(client, group="fleet-operator", tenants=("*",))
    assert fleet_form in text(client.get(index))
    assert agent_form in text(client.get(queue))
    assert 'value="echo"' in text(client.get(f"{reverse(ADD)}?scope=agent&name=echo"))
    shut(client, "agent", "echo")
    assert agent_form not in text(client.get(queue)), "it is paused"


def test_a_viewer_of_every_tenant_sees_all_and_changes_nothing(client: Client) -> None:
    worker = rows.worker()
    rows.session("theirs", tenant="t9")
    person(client, group="fleet-viewer", tenants=("*", "t1"))
    assert "theirs" in text(client.get(reverse("admin:sessions_app_session_changelist")))
    assert act(client, WORKERS, "drain_workers", worker).status_code == 403
    assert shut(client, "fleet").status_code == 403


def test_a_platform_operator_shuts_an_agent_and_opens_it_again(client: Client) -> None:
    person(client)
    assert "Pause claiming for" in text(client.get(reverse(ADD)))
    assert shut(client, "agent", "echo").status_code == 302
    gate = ClaimGate.objects.get()
    assert (gate.scope, gate.name, gate.set_by, gate.reason) == ("agent", "echo", "ann", "deploy")
    words = r"Claiming is paused for agent echo by ann \d+ s ago: deploy"
    assert re.search(words, text(client.get(reverse(GATES))))
    assert re.search(words, text(client.get(reverse("admin:index"))))
    assert said(act(client, GATES, "open_gates", gate)) == ["Say why, for the audit log: the field Reason is empty."]
    assert said(act(client, GATES, "open_gates", gate, reason="done")) == ["Open: 1 opened."]
    assert not ClaimGate.objects.exists()
    assert audited() == [("staff", "shut", "agent:echo", "deploy"), ("staff", "open", "agent:echo", "done")]


@pytest.mark.parametrize(
    ("scope", "name", "sentence"),
    [
        ("agent", "nobody", "must be an agent of this configuration"),
        ("kind", "dance", "must be one of"),
        ("fleet", "echo", "must not be given"),
        ("tenant", "", "is missing"),
        ("agent", "no agent", "must be a name"),
    ],
)
def test_a_wrong_pause_is_told_beside_its_field(client: Client, scope: str, name: str, sentence: str) -> None:
    person(client)
    assert sentence in text(shut(client, scope, name))
    assert not ClaimGate.objects.exists()


@pytest.mark.parametrize(("scope", "name"), [("fleet", ""), ("agent", "echo"), ("tenant", "t2")])
def test_a_tenants_operator_shuts_its_tenant_and_nothing_else(client: Client, scope: str, name: str) -> None:
    person(client, group="fleet-operator", tenants=("t1",))
    assert "takes a platform key" in text(shut(client, scope, name))
    assert shut(client, "tenant", "t1").status_code == 302
    assert [gate.name for gate in ClaimGate.objects.all()] == ["t1"]


def test_a_tenants_operator_sees_what_concerns_it_and_opens_only_its_own(client: Client) -> None:
    person(client)
    for scope, name in (("fleet", ""), ("tenant", "t1"), ("tenant", "t2")):
        shut(client, scope, name)
    client.logout()
    person(client, "bob", group="fleet-operator", tenants=("t1",))
    shown = text(client.get(reverse(GATES)))
    assert "the whole fleet" in shown
    assert "tenant t1" in shown
    assert "tenant t2" not in shown
    fleet_wide = ClaimGate.objects.get(scope="fleet")
    assert said(act(client, GATES, "open_gates", fleet_wide, reason="x")) == ["Open: 1 forbidden."]
    theirs = ClaimGate.objects.get(name="t2")
    act(client, GATES, "open_gates", theirs, reason="x")
    mine = ClaimGate.objects.get(name="t1")
    assert said(act(client, GATES, "open_gates", mine, reason="x"))[-1] == "Open: 1 opened."
    assert ClaimGate.objects.count() == 2


def test_a_viewer_shuts_nothing(client: Client) -> None:
    person(client, group="fleet-viewer", tenants=("t1",))
    assert client.get(reverse(ADD)).status_code == 403
    assert shut(client, "tenant", "t1").status_code == 403


def test_pauses_that_cannot_be_read_are_unknown_on_the_fleet_page(client: Client) -> None:
    person(client)
    rows.drop("claim_gates")
    assert "Whether claiming is paused is unknown" in text(client.get(reverse("admin:index")))
