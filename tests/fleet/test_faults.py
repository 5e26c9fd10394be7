"""Faults of what the evidence rests on, alone and together, as the callers of the health answer see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from jsonschema import Draft202012Validator

from dispatch import wiring
from fleet.evidence import gather_ready
from fleet.health import CONTROL, DEPENDENCIES, GOALS, QUEUE, REGISTRY
from fleet.health_schema import health_schema
from sessions_app.state_file import state_file
from tests.fleet import rows

pytestmark = pytest.mark.store

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "fleet.health.v1.schema.json"
TABLES = {GOALS: "goals", CONTROL: "ticks", REGISTRY: "dispatch_workers", QUEUE: "admission_shards"}
PARTS = {GOALS: {"goals"}, CONTROL: {"sessions", "domains"}, REGISTRY: {"dispatch_workers"}, QUEUE: set()}
FAULTS = [broken for count in range(len(DEPENDENCIES) + 1) for broken in combinations(DEPENDENCIES, count)]


def valid(body: Any) -> Any:
    """The body, which is what the published schema says."""
    validator = Draft202012Validator(json.loads(SCHEMA.read_text()), format_checker=Draft202012Validator.FORMAT_CHECKER)
    assert not [error.message for error in validator.iter_errors(body)]
    return body


@contextmanager
def unusable_queue_file(path: Path) -> Iterator[None]:
    wiring.transport().close()
    path.unlink()
    path.mkdir()
    yield
    path.rmdir()


def test_the_published_schema_is_what_the_answer_has(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("health_schema")
    printed = capsys.readouterr().out
    assert printed == health_schema()
    assert SCHEMA.read_text() == printed, "run: python manage.py health_schema > docs/fleet.health.v1.schema.json"
    Draft202012Validator.check_schema(json.loads(printed))


@pytest.mark.django_db
@pytest.mark.parametrize("broken", FAULTS, ids="+".join)
def test_what_cannot_be_read_is_unavailable_and_null_whatever_else_fails(
    client: Client, fleet_queue: Path | None, broken: tuple[str, ...]
) -> None:
    rows.goal(rows.session(), status="succeeded")
    rows.worker()
    header = rows.key("t1", "read")
    with ExitStack() as faults:
        for name in broken:
            if name == QUEUE and fleet_queue is not None:
                faults.enter_context(unusable_queue_file(fleet_queue))
            else:
                rows.drop(TABLES[name])
        answer = client.get("/api/fleet/health", headers=header)
        ready = client.get("/readyz")
        scaled = client.get("/api/fleet/autoscale", headers=header)
        page = client.get("/api/fleet/topology", headers=header).json()
    body = valid(answer.json())
    status = {0: "healthy", len(DEPENDENCIES): "unavailable"}.get(len(broken), "partial")
    evidence = body["evidence"]
    assert (answer.status_code, evidence["status"]) == (503 if broken else 200, status)
    assert (ready.status_code, ready.json()) == (answer.status_code, {"ready": not broken})
    assert (scaled.status_code, scaled.json()["desired"] is None) == (answer.status_code, bool(broken))
    for name, dependency in evidence["dependencies"].items():
        assert dependency["status"] == ("unavailable" if name in broken else "healthy"), name
        assert bool(dependency["diagnostics"]) == (name in broken)
    nulls: set[str] = set().union(*(PARTS[name] for name in broken))
    assert {name for name, part in body.items() if part is None} == nulls
    if "sessions" not in nulls:
        assert body["sessions"]["total"] == 1
    if "goals" not in nulls:
        assert body["goals"] == {"active": 0, "tracked": 1}
    if REGISTRY not in broken:
        assert len(body["dispatch_workers"]) == 1
    assert [page["goals"], page["domains"], page["dispatch_workers"]].count(None) == len({*broken} - {QUEUE})
    assert (page["totals"]["sessions"], page["page"]["returned"]) == ((None, None) if CONTROL in broken else (1, 1))
    assert page["totals"]["dispatch_workers"] == (None if REGISTRY in broken else 1)


@pytest.mark.django_db
def test_degraded_evidence_is_as_published_and_its_counts_are_there(client: Client, fleet_queue: object) -> None:
    rows.item(rows.session(status="active"))  # nothing in the queue stands for it
    answer = client.get("/api/fleet/health", headers=rows.key("t1", "read"))
    body = valid(answer.json())
    assert (answer.status_code, body["evidence"]["status"], body["sessions"]["total"]) == (503, "degraded", 1)


@pytest.mark.skipif(connection.vendor != "sqlite", reason="about the state store's file")
@pytest.mark.parametrize("rubbish", [None, b"this is no database" * 500], ids=["removed", "overwritten"])
@pytest.mark.django_db(transaction=True)
def test_without_a_usable_state_file_everything_is_unknown(
    client: Client, fleet_queue: Path, rubbish: bytes | None
) -> None:
    header = rows.key("t1", "read")
    path = state_file(connection)
    assert path is not None
    connection.close()  # the last one to close it empties its log
    away = path.rename(path.with_name(f"{path.name}.away"))
    try:
        if rubbish is not None:
            path.write_bytes(rubbish)
        reading = gather_ready()
        answers = [client.get("/readyz"), client.get("/api/fleet/health", headers=header)]
    finally:
        connection.close()
        away.replace(path)
    assert reading.evidence.status == "unavailable"
    assert (reading.goals, reading.sessions, reading.gates, reading.workers, reading.depth) == (None,) * 5
    assert [answer.status_code for answer in answers] == [503, 503]
    assert answers[1].json()["code"] == "store_unavailable"
    assert not any(str(path) in answer.content.decode() for answer in answers)
    assert gather_ready().evidence.status == "healthy"
