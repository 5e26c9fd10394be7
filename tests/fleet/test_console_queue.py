"""The pages of the queue and of the health evidence: what they tell, whom, and what they say when they cannot."""

from __future__ import annotations

import re
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from dispatch import wiring
from dispatch.errors import QueueUnavailable
from dispatch.models import ClaimGate, DeadEnvelope, Leadership, WorkItemDependency
from dispatch.selectors import convergence_findings
from fleet import queue
from fleet.models import FleetSample
from tests.dispatch.transports import queues
from tests.fleet import rows
from tests.fleet.test_console import HOSTILE, person, text

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]

QUEUE, HEALTH = "console:queue", "console:health"


def shown(client: Client, page: str = QUEUE) -> str:
    return text(client.get(reverse(page)))


def page_of(client: Client, page: str = QUEUE) -> Any:
    return client.get(reverse(page)).context["page"]


def tiles(client: Client) -> dict[str, str]:
    return {tile.title: tile.value for tile in page_of(client).tiles}


@pytest.fixture
def waiting() -> dict[str, Any]:
    """Something of everything that a job can wait for."""
    now = timezone.now()
    busy = rows.session("busy", status="active")
    made: dict[str, Any] = {"running": rows.item(busy, status="running"), "behind a turn": rows.item(busy)}
    made["ready"] = rows.item(rows.session("r"), created_at=now - timedelta(seconds=600))
    made["session paused"] = rows.item(rows.session("p", status="paused", desired="pause"))
    made["not yet due"] = rows.item(rows.session("l"), due_at=now + timedelta(minutes=4))
    made["waits for jobs"] = rows.item(rows.session("d"), status="submitted")
    made["waits for an answer"] = rows.item(rows.session("a"), status="suspended", suspended_for="input")
    made["waits for child jobs"] = rows.item(rows.session("c"), status="suspended", suspended_for="children")
    WorkItemDependency.objects.create(work_item=made["waits for jobs"], parent=made["ready"])
    rows.item(rows.session("done"), status="succeeded")
    rows.item(rows.session("theirs", tenant="t2"), agent_name="report")
    rows.converge()
    return made


def test_the_reads_say_of_each_job_what_it_waits_for(waiting: dict[str, Any]) -> None:
    found = queue.lanes(tenant="t1")
    (lane,) = found.lanes
    assert lane.counts == dict.fromkeys(waiting, 1)
    assert set(lane.counts) == set(queue.WAITS)
    assert found.is_whole
    assert lane.oldest_ready_s is not None
    assert 600 <= lane.oldest_ready_s < 660
    heads = {line.job_id: line.state for line in queue.longest_waiting(tenant="t1", limit=10)}
    assert heads == {item.job_id: why for why, item in waiting.items() if why not in ("running", "behind a turn")}


def test_the_reads_stop_at_their_window_and_say_so(waiting: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue, "WINDOW", 3)
    found = queue.lanes(tenant=None)
    assert sum(lane.total for lane in found.lanes) == 3
    assert not found.is_whole


def test_the_queue_page_tells_what_waits_for_what(client: Client, waiting: dict[str, Any]) -> None:
    person(client)
    seen = shown(client)
    for why, item in waiting.items():
        assert why in seen
        assert (item.job_id in seen) == (why not in ("running", "behind a turn"))
    seen_tiles = tiles(client)
    oldest = seen_tiles.pop("Oldest ready")
    assert seen_tiles == {"Ready": "2", "In flight": "1", "Depth": "7", "Dead envelopes": "0"}
    if not wiring.transport().capabilities.rows_in_store:  # else it counts since it became claimable, a moment ago
        assert oldest == "10 min"


def test_a_pause_is_told_with_who_since_when_and_why_and_holds_its_lanes(
    client: Client, waiting: dict[str, Any]
) -> None:
    person(client)
    ClaimGate.objects.create(
        scope="agent", name="echo", reason="vendor down", set_by="bob", set_at=timezone.now() - timedelta(minutes=37)
    )
    assert "Claiming is paused for agent echo by bob 37 min ago: vendor down" in shown(client)
    lanes = {line.agent_name: line.label.word for line in page_of(client).lanes}
    assert lanes == {"echo": "paused", "report": "open"}
    assert tiles(client)["Ready"] == "1", "what a pause holds is not ready"


def test_who_does_not_see_every_tenant_is_shown_no_number_of_the_whole_store(
    client: Client, waiting: dict[str, Any]
) -> None:
    person(client, group="fleet-viewer", tenants=("t2",))
    assert set(tiles(client)) == {"Ready", "Oldest ready", "In flight"}
    assert tiles(client)["Ready"] == "1"
    seen = shown(client)
    assert "theirs" in seen
    assert "Dead envelopes" not in seen
    for item in waiting.values():
        assert item.job_id not in seen


def test_dead_envelopes_are_counted_and_the_newest_named_without_their_bodies(client: Client) -> None:
    person(client)
    for place in range(12):
        DeadEnvelope.objects.create(
            digest=f"{place:064d}", body=HOSTILE.encode(), size=99, transport="kafka", reason="unknown_item",
            seen_at=timezone.now(),
        )  # fmt: skip
    page = page_of(client)
    assert (page.dead_count, len(page.dead)) == ("12", 10)
    seen = shown(client)
    assert "unknown item" in seen
    assert "onerror" not in seen


def test_a_depth_that_cannot_be_read_is_unknown_and_admission_is_said_to_be_shut(
    client: Client, waiting: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    person(client)

    def fails() -> int:
        raise QueueUnavailable("it is being rebuilt")

    monkeypatch.setattr(wiring.transport(), "depth", fails)
    assert tiles(client)["Depth"] == "unknown"
    assert "not readable: admission is shut" in shown(client)
    assert tiles(client)["In flight"] == "1", "one failed read fails no other"


@pytest.mark.parametrize(
    ("table", "unknown", "sentence"),
    [
        ("work_items", {"In flight"}, "Unknown: the work items could not be read."),
        ("claim_gates", {"Ready", "Oldest ready"}, "Whether claiming is paused is unknown"),
        ("dead_envelopes", {"Dead envelopes"}, "Unknown: they could not be read."),
    ],
)
def test_a_part_that_cannot_be_read_is_unknown_and_never_0(
    client: Client, waiting: dict[str, Any], table: str, unknown: set[str], sentence: str
) -> None:
    person(client)
    rows.drop(table)
    page = client.get(reverse(QUEUE))
    assert {tile.title for tile in page.context["page"].tiles if tile.value == "unknown"} >= unknown
    assert sentence in text(page)


def test_an_empty_queue_says_so(client: Client) -> None:
    person(client)
    seen = shown(client)
    for words in ("The queue is empty.", "Nothing waits.", "None: every message had a job behind it."):
        assert words in seen
    assert tiles(client)["Oldest ready"] == "–"


@pytest.mark.parametrize("page", ["admin:index", QUEUE, HEALTH])
def test_a_page_of_the_whole_fleet_takes_few_queries(client: Client, waiting: dict[str, Any], page: str) -> None:
    person(client)
    rows.worker(waiting["running"])
    with CaptureQueriesContext(connection) as check:
        convergence_findings()
    with CaptureQueriesContext(connection) as asked:
        shown(client, page)
    own = [q["sql"] for q in asked if not re.match("SAVEPOINT|RELEASE|ROLLBACK|SELECT set_config", q["sql"])]
    assert len(own) - (0 if page == QUEUE else len(check)) <= 15, own


def test_the_unfinished_are_found_in_their_own_index(waiting: dict[str, Any]) -> None:
    """Finished jobs, of which there may be a million, are never met."""
    with CaptureQueriesContext(connection) as asked:
        queue.lanes(tenant=None)
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL enable_seqscan = off")
    plan = explained(asked[-1]["sql"])
    assert "work_items_unfinished" in plan, plan


def explained(sql: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(("EXPLAIN QUERY PLAN " if connection.vendor == "sqlite" else "EXPLAIN ") + sql)
        return str(cursor.fetchall())


@pytest.mark.kafka
def test_with_kafka_the_depth_is_the_lag_of_the_group(
    client: Client, waiting: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(queues.kafka(tmp_path)) as transport:
        monkeypatch.setattr(wiring, "transport", lambda: transport)
        person(client)
        assert tiles(client)["Lag of the group"] == "0"
        assert "kafka, at most" in shown(client)


# -- health evidence ---------------------------------------------------------------------------------------------------
def test_the_health_page_tells_each_dependency_in_words_with_what_it_feeds(client: Client) -> None:
    person(client)
    rows.worker()
    rows.tick()
    page = page_of(client, HEALTH)
    assert [(row.name, row.label.word, row.label.icon) for row in page.dependencies] == [
        ("goal rehydration", "healthy", "check_circle"),
        ("control store", "healthy", "check_circle"),
        ("worker registry", "healthy", "check_circle"),
        ("dispatch queue", "healthy", "check_circle"),
    ]
    seen = shown(client, HEALTH)
    assert "Fleet evidence is healthy" in seen
    assert "Ready open" in seen
    assert "&quot;schema_version&quot;: &quot;fleet.health.v1&quot;" in seen


def test_a_diagnostic_is_explained_with_what_to_do(client: Client) -> None:
    person(client)
    rows.tick("rescue", age_s=900)
    rows.worker(alive_s=2000)
    seen = shown(client, HEALTH)
    assert "stale_tick:rescue" in seen
    assert "a periodic duty was not done for three of its periods" in seen
    (tick,) = page_of(client, HEALTH).ticks
    assert (tick.name, tick.label.word) == ("rescue", "late")


def test_without_a_worker_no_tick_is_called_late(client: Client) -> None:
    person(client)
    rows.tick("rescue", age_s=900)
    (tick,) = page_of(client, HEALTH).ticks
    assert tick.label.word == "on time"


def test_ticks_leadership_and_findings_are_told(client: Client) -> None:
    person(client)
    rows.tick("check")
    rows.finding("head_astray", 3)
    now = timezone.now()
    Leadership.objects.create(role="ticks", holder="host-1:4100", term=7, beat_at=now)
    Leadership.objects.create(role="other", holder="host-2:1", term=1, beat_at=now - timedelta(hours=1))
    page = page_of(client, HEALTH)
    assert [(row.label, row.count) for row in page.findings] == [("head_astray", 3)]
    assert [(row.role, row.term, row.label.word) for row in page.leaders] == [
        ("other", 1, "silent"),
        ("ticks", 7, "leads"),
    ]
    assert page.unchecked == ""


def test_findings_of_a_checker_that_no_longer_looks_are_told_as_such(client: Client) -> None:
    person(client)
    rows.tick("check", age_s=9000)
    rows.finding("head_astray")
    seen = shown(client, HEALTH)
    assert "It has not looked lately: a leading worker does, with every tick. This may be over." in seen


def test_which_rows_a_finding_names_is_for_who_sees_every_tenant(client: Client) -> None:
    found = rows.finding("head_astray")
    found.references = ["orch-of-somebody"]
    found.save()
    person(client, group="fleet-operator", tenants=("t1",))
    assert "orch-of-somebody" not in shown(client, HEALTH)
    person(client, "root")
    assert "orch-of-somebody" in shown(client, HEALTH)


def test_the_strip_shows_the_last_90_minutes(client: Client) -> None:
    person(client)
    at = timezone.now().replace(second=0, microsecond=0)
    FleetSample.objects.bulk_create(
        FleetSample(at=at - timedelta(minutes=n), evidence="partial" if n == 4 else "healthy") for n in range(95)
    )
    assert re.search(r"Evidence of the last (89|90) minutes: (88|89) healthy, 1 partial", shown(client, HEALTH))


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ("ticks", "Unknown: the ticks could not be read."),
        ("ticks", "Whether it has looked lately is unknown"),
        ("leadership", "Unknown: it could not be read."),
        ("check_findings", "Unknown: its findings could not be read."),
    ],
)
def test_a_part_of_the_health_page_that_cannot_be_read_is_unknown(client: Client, table: str, sentence: str) -> None:
    person(client)
    rows.drop(table)
    assert sentence in shown(client, HEALTH)
