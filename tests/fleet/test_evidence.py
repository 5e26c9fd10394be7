"""Evidence from real parts, whole and broken."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from dispatch import wiring
from dispatch.models import Leadership
from fleet import goals, selectors
from fleet.evidence import Reading, SuccessTimes, gather
from tests.fleet import rows

pytestmark = [pytest.mark.django_db, pytest.mark.store]


def look(successes: SuccessTimes | None = None) -> Reading[goals.GoalCounts, selectors.SessionCounts]:
    return gather(
        read_goals=lambda: goals.goal_counts(tenant=None),
        read_sessions=lambda: selectors.session_counts(tenant=None),
        successes=successes or SuccessTimes(),
    )


def test_an_empty_fleet_without_workers_is_healthy_and_every_part_is_read(fleet_queue: object) -> None:
    reading = look()
    assert reading.evidence.status == "healthy"
    assert reading.evidence.diagnostics == []
    assert (reading.workers, reading.depth) == ([], 0)
    assert reading.goals == goals.GoalCounts(active=0, tracked=0)
    assert reading.sessions is not None
    assert reading.sessions.total == 0


@pytest.mark.parametrize(
    ("table", "broken", "part"),
    [
        ("goals", "goal_rehydration", "goals"),
        ("sessions", "control_store", "sessions"),
        ("ticks", "control_store", "sessions"),
        ("claim_gates", "control_store", "sessions"),
        ("schedules", "control_store", "sessions"),
        ("dispatch_workers", "worker_registry", "workers"),
    ],
)
def test_a_table_that_cannot_be_read_fails_its_own_part_alone(
    fleet_queue: object, table: str, broken: str, part: str
) -> None:
    rows.drop(table)
    reading = look()
    assert reading.evidence.status == "partial"
    assert not reading.evidence.ready
    parts = {broken}
    if table == "sessions" and connection.vendor == "postgresql":
        parts.add("dispatch_queue")  # whether it agrees with the state cannot be told either
    for name, dependency in reading.evidence.dependencies:
        assert dependency.status == ("unavailable" if name in parts else "healthy"), name
    assert getattr(reading, part) is None
    kept = {"goals", "sessions", "workers", "depth"} - {part} - ({"depth"} if len(parts) > 1 else set())
    assert all(getattr(reading, name) is not None for name in kept)
    assert {line.split(": ")[0] for line in reading.evidence.diagnostics} == parts
    assert {line.split(": ")[1] for line in reading.evidence.diagnostics} <= {"OperationalError", "ProgrammingError"}


@pytest.mark.skipif(connection.vendor != "sqlite", reason="elsewhere the queue is in the state store")
def test_a_queue_file_that_cannot_be_opened_fails_the_queue_alone(fleet_queue: Path) -> None:
    wiring.transport().close()
    fleet_queue.unlink()
    fleet_queue.mkdir()
    reading = look()
    assert reading.evidence.status == "partial"
    assert reading.depth is None
    assert reading.evidence.dependencies.dispatch_queue.diagnostics == ["QueueUnavailable"]
    fleet_queue.rmdir()


def test_when_nothing_can_be_read_the_evidence_is_unavailable(
    fleet_queue: object, django_db_blocker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise ConnectionError("postgresql://user:secret@db/x")

    for read in ("tick_ages", "workers_live"):
        monkeypatch.setattr(selectors, read, refuse)
    monkeypatch.setattr(wiring, "transport", refuse)
    reading = gather(read_goals=refuse, read_sessions=refuse, successes=SuccessTimes())
    assert reading.evidence.status == "unavailable"
    assert "secret" not in reading.evidence.model_dump_json()
    assert reading.evidence.last_success_at is None


def test_a_stale_tick_impairs_only_while_a_worker_is_live(fleet_queue: object) -> None:
    rows.tick("rescue", age_s=600)
    assert look().evidence.status == "healthy"
    rows.worker(alive_s=300)
    evidence = look().evidence
    assert evidence.status == "degraded"
    assert evidence.dependencies.control_store.diagnostics == ["stale_tick:rescue"]


def test_what_the_leader_found_impairs_the_part_that_it_is_about(fleet_queue: object) -> None:
    rows.tick("check")
    rows.worker()
    rows.finding("waiting_for_ended")
    evidence = look().evidence
    assert (evidence.status, evidence.ready) == ("degraded", False)
    assert evidence.dependencies.dispatch_queue.diagnostics == ["waiting_for_ended"]
    assert evidence.dependencies.worker_registry.status == "healthy"
    rows.finding("worker_stuck")
    assert look().evidence.dependencies.worker_registry.diagnostics == ["worker_stuck"]


def test_what_was_found_when_a_worker_last_looked_says_nothing_of_now(fleet_queue: object) -> None:
    rows.finding("waiting_for_ended")
    assert look().evidence.status == "healthy", "nobody has ever looked"
    rows.tick("check", age_s=600)
    assert look().evidence.status == "healthy"


def test_a_worker_that_has_only_just_started_is_given_time_for_its_ticks(fleet_queue: object) -> None:
    rows.tick("rescue", age_s=600)
    rows.worker(alive_s=2)
    assert look().evidence.status == "healthy"


def test_a_worker_whose_heartbeat_is_old_is_not_live(fleet_queue: object) -> None:
    rows.worker(beat_s=1000, alive_s=5000)
    fresh = rows.worker()
    workers = look().workers
    assert workers is not None
    assert [worker.worker_id for worker in workers] == [fresh.worker_id]


def test_an_item_that_no_envelope_stands_for_is_found(fleet_queue: object) -> None:
    rows.item(rows.session(status="active"))
    evidence = look().evidence
    assert evidence.status == "degraded"
    assert evidence.dependencies.dispatch_queue.diagnostics == ["items_without_envelope"]


def test_a_lease_that_ended_long_ago_and_was_not_reaped_is_found(fleet_queue: object) -> None:
    rows.item(
        rows.session(status="active"), status="running", lease_expires_at=datetime.now(UTC) - timedelta(minutes=5)
    )
    assert "leases_expired" in look().evidence.dependencies.dispatch_queue.diagnostics


def test_times_of_success_are_remembered_and_values_are_not(fleet_queue: object) -> None:
    memory = SuccessTimes()
    good = look(memory)
    rows.drop("goals")
    bad = look(memory)
    goals = bad.evidence.dependencies.goal_rehydration
    assert goals.last_success_at == good.evidence.dependencies.goal_rehydration.checked_at
    assert bad.evidence.last_success_at == goals.last_success_at
    assert bad.goals is None


def test_success_times_of_many_threads_never_go_back() -> None:
    memory = SuccessTimes()
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def note(offset: int) -> None:
        for second in range(200):
            memory.succeeded("x", start + timedelta(seconds=offset + second))

    threads = [threading.Thread(target=note, args=(offset,)) for offset in (0, 100, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert memory.last("x") == start + timedelta(seconds=299)


def test_the_ready_probe_tells_its_flag_and_nothing_else(client: Client, fleet_queue: object) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True})
    assert answer["Cache-Control"] == "no-store"
    rows.drop("goals")
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (503, {"ready": False})


def test_the_alive_probe_answers_when_no_database_does(client: Client, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        answer = client.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True})


@pytest.mark.parametrize(
    ("beat_s", "schedule", "noted"),
    [
        (1, {"run_s": -60}, True),
        (1, {"refused_s": 60}, True),
        (1, {"run_s": -5}, False),  # no longer than a leader that dies may leave it
        (1, {"enabled": False}, False),
        (60, {"run_s": -60}, False),  # nobody leads, which says it all
    ],
)
def test_an_overdue_schedule_is_told_while_somebody_leads_and_is_no_fault(
    fleet_queue: object, beat_s: float, schedule: dict[str, Any], noted: bool
) -> None:
    rows.worker()
    rows.tick()
    beat = timezone.now() - timedelta(seconds=beat_s)
    Leadership.objects.create(role="ticks", holder="w", term=1, beat_at=beat)
    rows.schedule("s", **schedule)
    evidence = look().evidence
    assert evidence.status == "healthy"
    assert evidence.dependencies.control_store.diagnostics == (["schedules_overdue"] if noted else [])


@pytest.mark.skipif(connection.vendor != "postgresql", reason="elsewhere the queue is not in the state store")
def test_that_nobody_could_look_for_turns_without_a_worker_is_said() -> None:
    rows.worker()
    rows.converge()
    assert look().evidence.dependencies.worker_registry.diagnostics == []
    rows.drop("agent_dispatch_queue")
    assert "turns_without_worker_unread" in look().evidence.dependencies.worker_registry.diagnostics
