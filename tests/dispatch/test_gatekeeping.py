"""Pauses of claiming: who may set which, what they say, and that the claim keeps to them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from dispatch import gatekeeping, selectors
from dispatch.access import Caller
from dispatch.clock import store_now
from dispatch.errors import Forbidden, Invalid
from dispatch.models import ClaimGate, KnownAgent
from sessions_app.models import AuditEntry
from tests.dispatch.authority import world
from tests.fleet import rows

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

MINE = Caller(tenant="t1", name="me", kind="api_key", scopes=frozenset({"read", "operate"}), request_id="r-1")
OPS = Caller(tenant="ops", name="ops", kind="api_key", scopes=frozenset({"read", "operate"}), platform=True)
ALL = [("fleet", ""), ("kind", "orchestrator_task"), ("agent", "echo"), ("tenant", "t1")]


def shut(caller: Caller, scope: str, name: str, reason: str = "deploy") -> dict[str, Any]:
    return gatekeeping.gate_shut(caller=caller, scope=scope, name=name, reason=reason)


def let_open(caller: Caller, scope: str, name: str) -> dict[str, Any]:
    return gatekeeping.gate_open(caller=caller, scope=scope, name=name, reason="done")


@pytest.mark.parametrize(("scope", "name"), ALL)
def test_what_is_shut_is_not_claimed_until_it_is_opened(scope: str, name: str) -> None:
    item = world.add()
    answer = shut(OPS, scope, name)
    assert (answer["outcome"], answer["gate"]["by"], answer["gate"]["reason"]) == ("applied", "ops", "deploy")
    assert world.claim() == []
    told = selectors.job_explain(caller=MINE, job_id=item.job_id)
    assert (told["runnable"], told["reason"]) == (False, "session_paused")
    assert re.search(r" by ops \d+ s ago: deploy$", told["detail"])
    assert let_open(OPS, scope, name) == {"scope": scope, "name": name or None, "outcome": "applied", "gate": None}
    assert [lease.job_id for lease in world.claim()] == [item.job_id]


def test_what_runs_goes_on_and_commits() -> None:
    item = world.add()
    lease = world.claim_item(item)
    shut(OPS, "fleet", "")
    world.end(lease)
    assert world.fresh(item).status == "succeeded"


def test_the_first_who_shut_stays_the_one_who_did() -> None:
    shut(OPS, "agent", "echo", "first")
    again = shut(replace(OPS, name="other"), "agent", "echo", "second")
    assert (again["outcome"], again["gate"]["by"], again["gate"]["reason"]) == ("already", "ops", "first")
    assert let_open(OPS, "agent", "echo")["outcome"] == "applied"
    assert let_open(OPS, "agent", "echo")["outcome"] == "already"


@pytest.mark.parametrize(("scope", "name"), [*ALL[:3], ("tenant", "t2")])
def test_a_tenant_shuts_and_opens_nothing_but_itself(scope: str, name: str) -> None:
    with pytest.raises(Forbidden):
        shut(MINE, scope, name)
    with pytest.raises(Forbidden):
        let_open(MINE, scope, name)
    assert not ClaimGate.objects.exists()


def test_a_tenant_that_may_operate_shuts_and_opens_itself() -> None:
    assert shut(MINE, "tenant", "t1")["outcome"] == "applied"
    assert let_open(MINE, "tenant", "t1")["outcome"] == "applied"
    with pytest.raises(Forbidden):
        shut(replace(MINE, scopes=frozenset({"read"})), "tenant", "t1")


def test_a_kind_or_agent_that_is_none_is_refused_and_a_stale_gate_can_still_be_opened() -> None:
    for scope in ("kind", "agent"):
        with pytest.raises(Invalid) as refused:
            shut(OPS, scope, "ecko")
        assert list(refused.value.fields) == ["name"]
    KnownAgent.objects.create(name="ecko", first_seen=store_now(), last_seen=store_now())
    shut(OPS, "agent", "ecko")
    KnownAgent.objects.all().delete()
    assert let_open(OPS, "agent", "ecko")["outcome"] == "applied"


def test_each_act_is_audited_with_who_why_and_whose() -> None:
    shut(OPS, "fleet", "", "deploy")
    shut(MINE, "tenant", "t1", "too dear")
    let_open(MINE, "tenant", "t1")
    let_open(MINE, "tenant", "t1")
    told = ("actor", "tenant", "verb", "object_type", "object_id", "reason", "result", "request_id")
    assert list(AuditEntry.objects.order_by("id").values_list(*told)) == [
        ("ops", "ops", "shut", "gate", "fleet", "deploy", "applied", ""),
        ("me", "t1", "shut", "gate", "tenant:t1", "too dear", "applied", "r-1"),
        ("me", "t1", "open", "gate", "tenant:t1", "done", "applied", "r-1"),
        ("me", "t1", "open", "gate", "tenant:t1", "done", "already", "r-1"),
    ]


def test_a_tenant_sees_what_concerns_it() -> None:
    for scope, name in [*ALL, ("tenant", "t2")]:
        shut(OPS, scope, name)
    shown = gatekeeping.gate_list(caller=MINE)["gates"]
    assert [(gate["scope"], gate["name"]) for gate in shown] == [
        ("agent", "echo"),
        ("fleet", None),
        ("kind", "orchestrator_task"),
        ("tenant", "t1"),
    ]
    assert len(gatekeeping.gate_list(caller=OPS)["gates"]) == 5


# -- over HTTP ---------------------------------------------------------------------------------------------------------
def post(client: Client, verb: str, body: dict[str, Any], *scopes: str, platform: bool = True) -> Any:
    header = rows.key("t1", *scopes, platform=platform)
    return client.post(f"/api/fleet/gates/{verb}", body, content_type="application/json", headers=header)


def test_rest_shuts_lists_and_opens(client: Client) -> None:
    body = {"scope": "agent", "name": "echo", "reason": "deploy"}
    answer = post(client, "shut", body)
    assert answer.status_code == 200
    assert list(answer.json()) == ["scope", "name", "outcome", "gate"]
    listed = client.get("/api/fleet/gates", headers=rows.key("t2", "read")).json()
    assert listed == {"gates": [answer.json()["gate"]]}
    assert list(listed["gates"][0]) == ["scope", "name", "reason", "by", "at"]
    assert post(client, "open", body).json() == {"scope": "agent", "name": "echo", "outcome": "applied", "gate": None}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"scope": "agent", "name": "echo"}, "reason"),
        ({"scope": "agent", "reason": "x"}, "name"),
        ({"scope": "fleet", "name": "echo", "reason": "x"}, "name"),
        ({"scope": "agent", "name": "no such agent", "reason": "x"}, "name"),
        ({"scope": "world", "reason": "x"}, "scope"),
        ({"scope": "fleet", "reason": "x", "until": 1}, "until"),
    ],
)
def test_a_wrong_body_is_400_and_names_the_field(client: Client, body: dict[str, Any], field: str) -> None:
    for verb in ("shut", "open"):
        answer = post(client, verb, body)
        assert (answer.status_code, list(answer.json()["fields"])) == (400, [field])


def test_shutting_takes_operate_and_the_fleet_a_platform_key(client: Client) -> None:
    assert post(client, "shut", {"scope": "fleet", "reason": "x"}, "read", "dispatch").status_code == 403
    assert post(client, "shut", {"scope": "fleet", "reason": "x"}, platform=False).status_code == 403
    assert post(client, "shut", {"scope": "tenant", "name": "t1", "reason": "x"}, platform=False).status_code == 200
