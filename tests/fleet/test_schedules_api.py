"""Schedules over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from django.test import Client
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiYamlRenderer
from openapi_spec_validator import validate

from dispatch.models import Schedule, WorkItem
from fleet.api import schedule_docs
from sessions_app.models import AuditEntry
from tests.fleet import rows

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

SCHEDULES = "/api/fleet/schedules"
ONE = f"{SCHEDULES}/digest"
BODY = {"name": "digest", "cron": "0 6 * * MON-FRI", "timezone": "Europe/Berlin", "task": "write", "agent_name": "echo"}


class Caller:
    """One key."""

    def __init__(self, client: Client, *given: str, platform: bool = False) -> None:
        self._client, self._header = client, rows.key(*given, platform=platform)

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        raw = "" if body is None else json.dumps(body)
        return self._client.generic(method, path, raw, content_type="application/json", headers=self._header)


@pytest.fixture
def mine(client: Client) -> Caller:
    return Caller(client)


@pytest.fixture
def theirs(client: Client) -> Caller:
    return Caller(client, "t2")


def test_the_whole_life_of_a_schedule(mine: Caller) -> None:
    answer = mine("POST", SCHEDULES, BODY)
    assert answer.status_code == 201
    made = answer.json()
    schedule_docs.Schedule.model_validate(made)
    assert {key: made[key] for key in BODY} == BODY
    assert mine("POST", SCHEDULES, BODY).status_code == 200
    answer = mine("POST", SCHEDULES, {**BODY, "task": "other"})
    assert (answer.status_code, answer.json()["code"], list(answer.json()["fields"])) == (
        409, "schedule_exists", ["task"],
    )  # fmt: skip
    listed = mine("GET", SCHEDULES).json()
    schedule_docs.SchedulePage.model_validate(listed)
    assert listed == {"schedules": [made], "next_cursor": None}

    answer = mine("POST", f"{ONE}/run", {"idempotency_key": "k", "reason": "to see"})
    assert answer.status_code == 202
    handle = answer.json()
    assert mine("POST", f"{ONE}/run", {"idempotency_key": "k"}).json() == {**handle, "replayed": True}
    assert mine("GET", f"/api/graph/jobs/{handle['job_id']}").json()["metadata"]["schedule"] == "digest"

    paused = mine("POST", f"{ONE}/pause", {"reason": "holidays"}).json()
    assert (paused["enabled"], paused["next_run_at"], paused["paused"]["reason"]) == (False, None, "holidays")
    resumed = mine("POST", f"{ONE}/resume").json()
    assert (resumed["enabled"], resumed["next_run_at"]) == (True, made["next_run_at"])

    changed = mine("PATCH", ONE, {"cron": "*/5 * * * *", "session_id": "s-1"}).json()
    assert (changed["cron"], changed["session_id"], changed["task"]) == ("*/5 * * * *", "s-1", "write")
    shown = mine("GET", ONE).json()
    schedule_docs.ScheduleDetail.model_validate(shown)
    assert [run["outcome"] for run in shown["runs"]] == ["manual"]
    assert shown["last_job_id"] == handle["job_id"]

    answer = mine("DELETE", ONE)
    assert (answer.status_code, answer.content) == (204, b"")
    assert mine("GET", ONE).status_code == 404
    verbs = AuditEntry.objects.filter(object_type="schedule").order_by("id").values_list("verb", "result")
    assert list(verbs) == [
        ("create", "applied"),
        ("create", "already"),
        ("create", "conflict"),
        ("run", "applied"),
        ("run", "already"),
        ("pause", "applied"),
        ("resume", "applied"),
        ("change", "applied"),
        ("remove", "applied"),
    ]


OPERATIONS = [
    ("GET", ONE, None),
    ("PATCH", ONE, {"task": "mine now"}),
    ("POST", f"{ONE}/run", {}),
    ("POST", f"{ONE}/pause", {}),
    ("POST", f"{ONE}/resume", {}),
    ("DELETE", ONE, None),
]


@pytest.mark.parametrize(("method", "path", "body"), OPERATIONS)
def test_another_tenants_schedule_is_404_and_unchanged(
    mine: Caller, theirs: Caller, method: str, path: str, body: Any
) -> None:
    mine("POST", SCHEDULES, BODY)
    before = Schedule.objects.values().get()
    answer = theirs(method, path, body)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert Schedule.objects.values().get() == before
    assert theirs("GET", SCHEDULES).json()["schedules"] == []
    assert not WorkItem.objects.exists()


def test_a_platform_key_sees_every_tenants(client: Client, mine: Caller, theirs: Caller) -> None:
    mine("POST", SCHEDULES, BODY)
    theirs("POST", SCHEDULES, BODY)
    platform = Caller(client, "ops", platform=True)
    assert {one["tenant"] for one in platform("GET", SCHEDULES).json()["schedules"]} == {"t1", "t2"}


@pytest.mark.parametrize(("method", "path", "body"), [("GET", SCHEDULES, None), ("POST", SCHEDULES, BODY), *OPERATIONS])
def test_reading_takes_read_and_everything_else_operate(
    client: Client, mine: Caller, method: str, path: str, body: Any
) -> None:
    mine("POST", SCHEDULES, BODY)
    wrong = ("dispatch", "operate") if method == "GET" else ("read", "dispatch")
    answer = Caller(client, "t1", *wrong)(method, path, body)
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
    assert client.generic(method, path).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "field"),
    [
        ("POST", SCHEDULES, {**BODY, "cron": "61 * * * *"}, "cron"),
        ("POST", SCHEDULES, {**BODY, "timezone": "Mars/Olympus"}, "timezone"),
        ("POST", SCHEDULES, {"name": "x"}, "cron"),
        ("POST", SCHEDULES, {**BODY, "crom": "x"}, "crom"),
        ("PATCH", ONE, {"name": "other"}, "name"),
        ("PATCH", ONE, {"jitter_s": "1"}, "jitter_s"),
        ("POST", f"{ONE}/run", {"idempotency_key": ""}, "idempotency_key"),
        ("POST", f"{ONE}/pause", {"why": "x"}, "why"),
        ("POST", f"{ONE}/resume", {"reason": "x" * 501}, "reason"),
        ("GET", f"{SCHEDULES}?limit=501", None, "limit"),
        ("GET", f"{SCHEDULES}?cursor=nonsense", None, "cursor"),
        ("GET", f"{ONE}?limit=1", None, "limit"),
        ("DELETE", f"{ONE}?force=1", None, "force"),
    ],
)
def test_a_wrong_request_is_400_and_names_the_field(
    mine: Caller, method: str, path: str, body: Any, field: str
) -> None:
    mine("POST", SCHEDULES, BODY)
    answer = mine(method, path, body)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert field in answer.json()["fields"]
    assert Schedule.objects.count() == 1


def test_a_name_that_none_can_have_is_404(mine: Caller) -> None:
    assert mine("GET", f"{SCHEDULES}/with%00nul").status_code == 404
    assert mine("GET", f"{SCHEDULES}/with%20space").status_code == 404


def test_the_document_has_every_operation_and_is_made_without_a_warning() -> None:
    GENERATOR_STATS.reset()
    generator = SchemaGenerator(urlconf="fleet.api.urls")  # type: ignore[no-untyped-call]
    made = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    document = yaml.safe_load(OpenApiYamlRenderer().render(made))  # type: ignore[no-untyped-call]
    validate(document)
    assert not GENERATOR_STATS
    paths = {path: set(item) for path, item in document["paths"].items() if "schedules" in path}
    one = f"{SCHEDULES}/{{name}}"
    assert paths == {
        SCHEDULES: {"get", "post"},
        one: {"get", "patch", "delete"},
        f"{one}/run": {"post"},
        f"{one}/pause": {"post"},
        f"{one}/resume": {"post"},
    }
    for path in paths:
        for operation in document["paths"][path].values():
            assert operation["security"]
            assert {"400", "401", "403", "503"} <= set(operation["responses"])
    schemas = document["components"]["schemas"]
    assert set(schemas["ScheduleBody"]["required"]) == {"name", "cron", "task"}
    assert "required" not in schemas["PatchedScheduleChange"]
