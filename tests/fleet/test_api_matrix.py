"""Every operation of the REST API, by key: none, unknown, revoked, expired, each scope, another tenant, the platform.

The operations are those of the API's own description: one that is new fails here until it is said who may call it.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, NamedTuple

import pytest
from django.test import Client
from django.utils import timezone
from drf_spectacular.generators import SchemaGenerator

from fleet.models import ApiKey
from tests.fleet import rows
from tests.fleet.test_console import fleet

__all__ = ["fleet"]  # the fixture: two tenants with something of everything in each

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

SCOPES = ("read", "dispatch", "operate")
OPEN = {"GET /healthz", "GET /readyz"}


class May(NamedTuple):
    """Who may call it, and with which body."""

    scope: str
    body: dict[str, Any] | None = None
    platform: bool = False  # a key of one tenant may not
    found: int | None = None  # the status for an object of another tenant; None: the call names none


WHY = {"reason": "a test"}
ONE = {"session_ids": ["chat-t1"], **WHY}
MAY = {
    "GET /api/fleet/autoscale": May("read"),
    "GET /api/fleet/gates": May("read"),
    "POST /api/fleet/gates/open": May("operate", {"scope": "fleet", **WHY}, platform=True),
    "POST /api/fleet/gates/shut": May("operate", {"scope": "fleet", **WHY}, platform=True),
    "GET /api/fleet/health": May("read"),
    "POST /api/fleet/kill": May("operate", ONE, found=200),  # in the outcome of that session
    "POST /api/fleet/pause": May("operate", ONE, found=200),
    "POST /api/fleet/resume": May("operate", ONE, found=200),
    "GET /api/fleet/limits": May("read"),
    "POST /api/fleet/limits/clear": May("operate", {"scope": "tenant", "name": "t1", **WHY}, platform=True),
    "POST /api/fleet/limits/set": May(
        "operate", {"scope": "tenant", "name": "t1", "max_running": 3, **WHY}, platform=True
    ),
    "GET /api/fleet/schedules": May("read"),
    "POST /api/fleet/schedules": May("operate", {"name": "hourly", "cron": "0 * * * *", "task": "t"}),
    "GET /api/fleet/schedules/{name}": May("read", found=404),
    "PATCH /api/fleet/schedules/{name}": May("operate", {"task": "t"}, found=404),
    "DELETE /api/fleet/schedules/{name}": May("operate", found=404),
    "POST /api/fleet/schedules/{name}/pause": May("operate", WHY, found=404),
    "POST /api/fleet/schedules/{name}/resume": May("operate", WHY, found=404),
    "POST /api/fleet/schedules/{name}/run": May("operate", WHY, found=404),
    "GET /api/fleet/topology": May("read"),
    "POST /api/fleet/workers/{worker_id}/drain": May("operate", WHY, platform=True),
    "GET /api/graph/jobs": May("read"),
    "GET /api/graph/jobs/{job_id}": May("read", found=404),
    "GET /api/graph/jobs/{job_id}/stream": May("read", found=404),
    "GET /api/sessions": May("read"),
    "POST /api/sessions": May("dispatch", {"session_id": "fresh"}),
    "GET /api/sessions/{session_id}": May("read", found=404),
    "POST /api/sessions/{session_id}/reply": May("dispatch", {"text": "yes"}, found=404),
    "GET /api/sessions/{session_id}/turns": May("read", found=404),
    "GET /metrics": May("read"),
    # one address, an operation for each action
    "POST /api/graph/jobs dispatch": May("dispatch", {"task": "t"}),
    "POST /api/graph/jobs dispatch_many": May("dispatch", {"jobs": [{"task": "t"}]}),
    "POST /api/graph/jobs list": May("read", {}),
    "POST /api/graph/jobs status": May("read", {"job_id": "JOB"}, found=404),
    "POST /api/graph/jobs wait": May("read", {"job_id": "JOB", "timeout_s": 0}, found=404),
    "POST /api/graph/jobs result": May("read", {"job_id": "JOB"}, found=404),
    "POST /api/graph/jobs explain": May("read", {"job_id": "JOB"}, found=404),
    "POST /api/graph/jobs events": May("read", {"job_id": "JOB"}, found=404),
    "POST /api/graph/jobs iterations": May("read", {"job_id": "JOB"}, found=404),
    "POST /api/graph/jobs cancel": May("dispatch", {"job_id": "JOB", **WHY}, found=404),
    "POST /api/graph/jobs retry": May("dispatch", {"job_id": "JOB"}, found=404),
    "POST /api/graph/jobs redeliver": May("dispatch", {"job_id": "JOB", "delivery_id": "msg_0"}, found=404),
}
JOBS = "POST /api/graph/jobs"


def operations() -> list[str]:
    """Those of the description; the address of jobs once for each action."""
    document = SchemaGenerator().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    named = [f"{verb.upper()} {path}" for path, verbs in document["paths"].items() for verb in verbs]
    actions = document["components"]["schemas"]["JobAction"]["discriminator"]["mapping"]
    return [name for name in named if name != JOBS] + [f"{JOBS} {action}" for action in actions]


def call(client: Client, name: str, scene: dict[str, Any], header: dict[str, str]) -> tuple[int, str]:
    """Do it on what tenant t1 has."""
    verb, path, *action = name.split()
    job = scene["t1"]["failed"].job_id
    path = path.format(job_id=job, session_id="chat-t1", name="nightly-t1", worker_id=scene["worker"].worker_id)
    body = MAY[name].body
    if action:
        body = {"action": action[0], **(body or {})}
    text = None if body is None else json.dumps(body).replace("JOB", job)
    answer = client.generic(verb, path, text or "", content_type="application/json", headers=header)
    content = b"".join(answer.streaming_content) if answer.streaming else answer.content  # type: ignore[attr-defined]
    return answer.status_code, content.decode()


def test_it_is_said_of_every_operation_who_may_call_it() -> None:
    assert set(operations()) - OPEN == set(MAY)


@pytest.mark.parametrize("name", sorted(OPEN))
def test_what_is_open_is_open(client: Client, name: str) -> None:
    assert client.get(name.split()[1]).status_code in (200, 503)


@pytest.mark.parametrize("key", ["none", "unknown", "revoked", "expired"])
@pytest.mark.parametrize("name", sorted(MAY))
def test_without_a_key_that_holds_nothing_opens(client: Client, fleet: dict[str, Any], name: str, key: str) -> None:
    header = {} if key == "none" else rows.key("t1", platform=True)
    if key == "unknown":
        header = {"authorization": "Bearer fs_" + "x" * 43}
    made = ApiKey.objects.order_by("pk").last()
    assert made is not None
    if key == "revoked":
        ApiKey.objects.filter(pk=made.pk).update(revoked_at=timezone.now())
    if key == "expired":
        ApiKey.objects.filter(pk=made.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert call(client, name, fleet, header)[0] == 401


@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("name", sorted(MAY))
def test_a_key_may_what_its_scope_says_and_nothing_else(
    client: Client, fleet: dict[str, Any], name: str, scope: str
) -> None:
    may = MAY[name]
    status, text = call(client, name, fleet, rows.key("t1", scope))
    if scope != may.scope or may.platform:
        assert status == 403, text
    else:
        assert status not in (401, 403), text
    status, text = call(client, name, fleet, rows.key("t1", scope, platform=True))
    assert (status == 403) is (scope != may.scope), text


@pytest.mark.parametrize("name", sorted(MAY))
def test_another_tenant_neither_sees_nor_touches_what_is_there(
    client: Client, fleet: dict[str, Any], name: str
) -> None:
    may = MAY[name]
    before = _of_t1(fleet)
    status, text = call(client, name, fleet, rows.key("t9"))
    if may.platform:
        assert status == 403
    elif may.found is not None:
        assert status == may.found, text
        assert "not_found" in text
    else:
        assert status < 400, text
        assert fleet["t1"]["failed"].job_id not in text
        assert "chat-t1" not in text
    assert _of_t1(fleet) == before


def _of_t1(scene: dict[str, Any]) -> list[Any]:
    """What a call could have changed there."""
    for name in ("session", "failed", "running", "waiting"):
        scene["t1"][name].refresh_from_db()
    mine = scene["t1"]
    return [
        mine["session"].desired,
        *((mine[name].status, mine[name].epoch) for name in ("failed", "running", "waiting")),
    ]
