"""Limits: who may set them, what REST and the command line answer, and the audit."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from dispatch.models import ClaimLimit
from sessions_app.models import AuditEntry
from tests.dispatch.authority import world
from tests.fleet import rows
from tests.fleet.terminal import answered, manage

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]
LIMIT = {"scope": "agent", "name": "echo", "max_running": 2, "rate_per_s": 1.5, "reason": "one GPU"}


def post(client: Client, verb: str, body: dict[str, Any], *scopes: str, platform: bool = True) -> Any:
    header = rows.key("t1", *scopes, platform=platform)
    return client.post(f"/api/fleet/limits/{verb}", body, content_type="application/json", headers=header)


def test_rest_sets_replaces_lists_and_clears(client: Client) -> None:
    answer = post(client, "set", LIMIT)
    assert answer.status_code == 200
    assert list(answer.json()) == ["scope", "name", "outcome", "limit"]
    shown = answer.json()["limit"]
    assert {name: shown[name] for name in LIMIT} == LIMIT
    assert (shown["burst"], shown["by"]) == (2, "test")
    assert client.get("/api/fleet/limits", headers=rows.key("t2", "read")).json() == {"limits": [shown]}
    assert post(client, "set", {**LIMIT, "rate_per_s": None, "max_running": 5}).json()["limit"]["max_running"] == 5
    assert ClaimLimit.objects.count() == 1
    named = {name: LIMIT[name] for name in ("scope", "name", "reason")}
    cleared = {"scope": "agent", "name": "echo", "outcome": "applied", "limit": None}
    assert post(client, "clear", named).json() == cleared
    assert post(client, "clear", named).json()["outcome"] == "already"


def test_a_tenant_sees_its_own_and_the_agents_limits(client: Client) -> None:
    for scope, name in (("agent", "echo"), ("tenant", "t1"), ("tenant", "t2")):
        post(client, "set", {**LIMIT, "scope": scope, "name": name})
    shown = client.get("/api/fleet/limits", headers=rows.key("t2", "read")).json()["limits"]
    assert [(limit["scope"], limit["name"]) for limit in shown] == [("agent", "echo"), ("tenant", "t2")]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"max_running": None, "rate_per_s": None}, "max_running"),
        ({"max_running": 0}, "max_running"),
        ({"max_running": 1.5}, "max_running"),
        ({"rate_per_s": 0.0}, "rate_per_s"),
        ({"rate_per_s": None, "burst": 3}, "burst"),
        ({"burst": 0}, "burst"),
        ({"scope": "fleet"}, "scope"),
        ({"name": "nobody"}, "name"),
        ({"name": "no name"}, "name"),
        ({"reason": ""}, "reason"),
        ({"until": 1}, "until"),
    ],
)
def test_a_wrong_body_is_400_and_names_the_field(client: Client, change: dict[str, Any], field: str) -> None:
    answer = post(client, "set", {**LIMIT, **change})
    assert (answer.status_code, list(answer.json()["fields"])) == (400, [field])
    assert not ClaimLimit.objects.exists()


def test_it_takes_a_platform_key_that_operates(client: Client) -> None:
    assert post(client, "set", LIMIT, "read", "dispatch").status_code == 403
    assert post(client, "set", LIMIT, platform=False).status_code == 403
    assert post(client, "set", {**LIMIT, "scope": "tenant", "name": "t1"}, platform=False).status_code == 403


def test_the_command_line_does_the_same_and_both_are_audited() -> None:
    assert manage("fleet", "limits") == (0, "nothing is limited\n", "")
    code, body = answered("fleet", "limit", "agent", "echo", "--max-running", "1", "--reason", "one GPU")
    assert (code, body["limit"]["max_running"], body["limit"]["burst"]) == (0, 1, None)
    world.add("a")
    world.add("b")
    assert len(world.claim(want=5)) == 1
    assert answered("fleet", "limits") == (0, {"limits": [body["limit"]]})
    assert "one GPU" in manage("fleet", "limits")[1]
    assert manage("fleet", "unlimit", "agent", "echo", "--reason", "two GPUs")[1] == "agent echo is limited no more\n"
    assert len(world.claim(want=5)) == 1
    told = AuditEntry.objects.order_by("id").values_list("actor_kind", "verb", "object_id", "reason", "result")
    assert list(told) == [
        ("command_line", "limit", "agent:echo", "one GPU", "applied"),
        ("command_line", "unlimit", "agent:echo", "two GPUs", "applied"),
    ]
    assert manage("fleet", "limit", "agent", "echo", "--rate-per-s", "fast", "--reason", "x")[0] == 2
    assert manage("fleet", "limit", "agent", "echo", "--max-running", "1", "--reason", "x", "--tenant", "t1")[0] == 3
