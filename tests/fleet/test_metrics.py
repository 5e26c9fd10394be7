"""The scrape."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from dispatch import wiring
from dispatch.models import ModelTotal, PruneTotal, ScheduleCounter, TurnCounter
from tests.fleet import rows

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

DEPTH = "agent_utilities_dispatch_queue_depth"
TURNS = "agent_utilities_dispatch_turns_total"
WORKERS = "agent_utilities_dispatch_workers"
OLDEST = "agent_utilities_dispatch_oldest_ready_age_seconds"
WITHOUT_WORKER = "agent_utilities_dispatch_turns_without_worker"
PRUNED = "agent_utilities_dispatch_pruned_rows_total"
RETENTION = "agent_utilities_dispatch_retention_age_seconds"
GATES = "agent_utilities_dispatch_claim_gates"
SCHEDULE_RUNS = "agent_utilities_dispatch_schedule_runs_total"
SCHEDULE_LATE = "agent_utilities_dispatch_schedule_late_seconds_total"
OVERDUE = "agent_utilities_dispatch_schedules_overdue"
WEBHOOKS = "agent_utilities_dispatch_webhook_deliveries"
WEBHOOKS_OLDEST = "agent_utilities_dispatch_webhook_oldest_pending_age_seconds"
SILENT = "agent_utilities_dispatch_workers_silent"
GOALS = "agent_utilities_dispatch_goals"
ITERATIONS = "agent_utilities_dispatch_goal_iterations_total"
SCHEDULED = {SCHEDULE_RUNS, SCHEDULE_LATE, OVERDUE}
STORE_WIDE = {
    DEPTH,
    TURNS,
    WORKERS,
    SILENT,
    OLDEST,
    WITHOUT_WORKER,
    GATES,
    *SCHEDULED,
    WEBHOOKS,
    WEBHOOKS_OLDEST,
    GOALS,
    ITERATIONS,
}


def scrape(client: Client, header: dict[str, str]) -> dict[str, dict[tuple[str, ...], float]]:
    """Samples by name, then by the values of their labels."""
    answer = client.get("/metrics", headers=header)
    assert answer.status_code == 200
    samples: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(answer.content.decode()):
        for sample in family.samples:
            samples.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return samples


def platform() -> dict[str, str]:
    return rows.key("ops", "read", platform=True)


def test_a_platform_key_reads_the_whole_store(client: Client) -> None:
    rows.worker()
    rows.worker(beat_s=10_000)
    TurnCounter.objects.create(outcome="completed", shard=0, count=3)
    TurnCounter.objects.create(outcome="completed", shard=1, count=4)
    TurnCounter.objects.create(outcome="skipped", shard=0, count=1)
    samples = scrape(client, platform())
    assert samples[DEPTH] == {(wiring.transport().name,): 0}
    assert samples[WORKERS] == samples[SILENT] == {(): 1}
    assert samples[TURNS] == {
        ("completed",): 7,
        ("failed",): 0,
        ("skipped",): 1,
        ("expired",): 0,
        ("cancelled",): 0,
    }
    assert samples[OLDEST] == {(): 0}


def test_goals_that_have_not_ended_and_their_iterations_are_counted(client: Client) -> None:
    rows.goal(rows.session(), status="running")
    rows.goal(rows.session(), status="suspended")
    rows.goal(rows.session(), status="succeeded")
    TurnCounter.objects.create(outcome="iteration_passed", shard=3, count=2)
    TurnCounter.objects.create(outcome="iteration_missed", shard=0, count=5)
    TurnCounter.objects.create(outcome="iteration_missed", shard=9, count=6)
    samples = scrape(client, platform())
    assert {labels: count for labels, count in samples[GOALS].items() if count} == {("running",): 1, ("suspended",): 1}
    assert samples[ITERATIONS] == {("passed",): 2, ("not_passed",): 11}
    assert not sum(samples[TURNS].values()), "an iteration is no turn"


def test_what_retention_did_and_when_is_told(client: Client) -> None:
    header = platform()
    assert not {PRUNED, RETENTION} & set(scrape(client, header)), "nothing is known yet"
    PruneTotal.objects.create(table="turns", rows=7)
    rows.tick("retention", age_s=30)
    samples = scrape(client, header)
    assert samples[PRUNED] == {("turns",): 7}
    assert 30 <= samples[RETENTION][()] < 600


def test_what_agents_asked_of_models_is_told(client: Client) -> None:
    ModelTotal.objects.create(agent_name="chat", requests=3, input_tokens=70, output_tokens=30)
    samples = scrape(client, platform())
    assert samples["agent_utilities_dispatch_model_requests_total"] == {("chat",): 3}
    assert samples["agent_utilities_dispatch_model_tokens_total"] == {("chat", "input"): 70, ("chat", "output"): 30}


def test_the_age_of_the_oldest_claimable_turn_is_told(client: Client) -> None:
    rows.item(rows.session(status="active"))
    rows.converge()
    samples = scrape(client, platform())
    assert samples[DEPTH] == {(wiring.transport().name,): 1}
    assert 0 <= samples[OLDEST][()] < 600


def test_due_times_are_counted_by_what_became_of_them_and_overdue_schedules_are_told(client: Client) -> None:
    ScheduleCounter.objects.create(outcome="queued", count=3, late_s=4.5)
    ScheduleCounter.objects.create(outcome="refused", count=2)
    rows.schedule("on-time")
    rows.schedule("late", run_s=-60)
    rows.schedule("refused", refused_s=60)
    rows.schedule("off", enabled=False)
    samples = scrape(client, platform())
    assert samples[SCHEDULE_RUNS] == {
        ("queued",): 3,
        ("manual",): 0,
        ("coalesced",): 0,
        ("skipped",): 0,
        ("missed",): 0,
        ("refused",): 2,
    }
    assert samples[SCHEDULE_LATE] == {(): 4.5}
    assert samples[OVERDUE] == {(): 2}


def test_a_tenants_key_reads_nothing_store_wide(client: Client) -> None:
    samples = scrape(client, rows.key("t1", "read"))
    assert not STORE_WIDE & set(samples)
    assert samples


@pytest.mark.parametrize(
    ("table", "absent"),
    [
        ("dispatch_workers", {WORKERS, SILENT, WITHOUT_WORKER}),
        ("turn_counters", {TURNS, ITERATIONS}),
        ("claim_gates", {GATES, OLDEST}),
        ("schedule_counters", {SCHEDULE_RUNS, SCHEDULE_LATE}),
        ("schedules", {OVERDUE}),
    ],
)
def test_a_metric_that_cannot_be_read_is_absent_and_the_others_stay(
    client: Client, table: str, absent: set[str]
) -> None:
    header = platform()
    rows.drop(table)
    assert STORE_WIDE - set(scrape(client, header)) == absent


@pytest.mark.skipif(connection.vendor != "sqlite", reason="elsewhere the queue is in the state store")
def test_an_unreadable_queue_has_no_depth(client: Client, fleet_queue: Path) -> None:
    wiring.transport().close()
    fleet_queue.unlink()
    fleet_queue.mkdir()
    try:
        assert DEPTH not in scrape(client, platform())
    finally:
        fleet_queue.rmdir()


def test_any_accept_header_is_answered(client: Client) -> None:
    header = platform()
    for accept in ("application/openmetrics-text; version=1.0.0", "text/html", "image/png"):
        assert client.get("/metrics", headers={**header, "accept": accept}).status_code == 200


def test_processes_that_share_a_directory_are_scraped_together(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", str(tmp_path))
    assert set(scrape(client, platform())) == STORE_WIDE


def test_deliveries_that_were_not_taken_are_counted(client: Client) -> None:
    rows.deliveries(pending=2, dead=1, delivered=3)
    samples = scrape(client, platform())
    assert samples[WEBHOOKS] == {("pending",): 2, ("dead",): 1}
    assert samples[WEBHOOKS_OLDEST][()] >= 60
