"""What the console says first: what needs somebody, what was done on purpose, which agents nobody runs."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dispatch.models import KnownAgent, Question, WorkItem
from tests.fleet import rows
from tests.fleet.test_console import fleet, person, text

__all__ = ["fleet"]  # a fixture

pytestmark = [pytest.mark.django_db, pytest.mark.store, pytest.mark.usefixtures("fleet_queue")]


def test_the_fleet_page_says_what_needs_attention_and_what_was_done_on_purpose(
    client: Client, fleet: dict[str, Any]
) -> None:
    person(client, group="fleet-viewer", tenants=("t1",))
    shown = text(client.get(reverse("admin:index")))
    assert "Nothing waits for you." in shown
    assert f"ci: cancel job {fleet['t1']['failed'].job_id}, done" in shown
    assert fleet["t2"]["failed"].job_id not in shown
    ago = timezone.now() - timedelta(minutes=5)
    for tenant in ("t1", "t2"):
        session = rows.session(f"asks-{tenant}", tenant=tenant, status="needs_input")
        job = rows.item(session, status="suspended", suspended_for="input")
        Question.objects.create(work_item=job, session=session, epoch=1, question="?", asked_at=ago)
        rows.schedule(f"late-{tenant}", tenant=tenant, run_s=-300)
    WorkItem.objects.filter(pk=fleet["t1"]["running"].pk).update(owner="lost", cancel_requested_at=ago)
    rows.worker(token="lost", beat_s=100_000, alive_s=200_000)
    shown = text(client.get(reverse("admin:index")))
    for words in (
        "1 consumer silent, 1 lease still held",
        "and 1 silent",
        "1 turn told to stop and still running, the first 5 min ago",
        "1 session waiting for an answer, the oldest 5 min ago",
        "1 schedule late or refused, the first due 5 min ago",
    ):
        assert words in shown
    assert "Nothing waits for you." not in shown
    rows.drop("questions")
    rows.drop("audit_entries")
    shown = text(client.get(reverse("admin:index")))
    assert "Unknown: it could not be read." in shown
    assert "Unknown: the audit could not be read." in shown


def test_leases_that_nobody_takes_back_and_new_dead_letters_are_told(client: Client) -> None:
    person(client, group="fleet-viewer", tenants=("t1",))
    now = timezone.now()
    for tenant in ("t1", "t2"):
        held = rows.item(rows.session(f"held-{tenant}", tenant=tenant), status="running", tenant=tenant)
        WorkItem.objects.filter(pk=held.pk).update(lease_expires_at=now - timedelta(minutes=4))
        for minutes in (10, 70):
            ended = now - timedelta(minutes=minutes)
            session = rows.session(f"dead-{tenant}-{minutes}", tenant=tenant)
            rows.item(session, status="dead_letter", tenant=tenant, finished_at=ended)
    fresh = rows.item(rows.session("fresh"), status="running")
    WorkItem.objects.filter(pk=fresh.pk).update(lease_expires_at=now - timedelta(seconds=20))
    shown = text(client.get(reverse("admin:index")))
    assert "1 lease expired and not taken back, the first 4 min ago" in shown
    assert "1 dead letter in the last hour, the first 10 min ago" in shown
    assert f"{reverse('admin:dispatch_workitem_changelist')}?state=dead_letter" in shown


def test_the_agents_page_says_which_a_live_worker_runs(client: Client) -> None:
    now = timezone.now()
    for name in ("echo", "gone"):
        KnownAgent.objects.create(name=name, first_seen=now, last_seen=now)
    rows.worker(agents=["echo"])
    rows.worker(agents=["gone"], draining=True)
    rows.worker(agents=["gone"], beat_s=100_000)
    person(client, group="fleet-viewer", tenants=("t1",))
    shown = text(client.get(reverse("admin:dispatch_knownagent_changelist")))
    assert re.findall(r"\b(served|no live worker)\s*</span>", shown) == ["served", "no live worker"]
    page = reverse("admin:dispatch_knownagent_change", args=[KnownAgent.objects.get(name="gone").pk])
    assert "no live worker" in text(client.get(page))
