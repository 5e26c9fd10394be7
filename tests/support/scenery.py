"""A fleet in the middle of a working day, the same each time: for pictures of the console."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.urls import reverse

from dispatch.models import (
    ClaimGate,
    DeadEnvelope,
    KnownAgent,
    Leadership,
    OutputChunk,
    Question,
    TurnCounter,
    WebhookDelivery,
    WorkItem,
    WorkItemEvent,
)
from fleet.models import BulkOperation, FleetSample
from sessions_app.models import AuditEntry, Session, Turn
from tests.fleet import rows

NOW = datetime(2026, 11, 30, 14, 20, 12, tzinfo=UTC)
AGENTS = ("triage", "index", "report", "review")
OUTPUT = [
    "Reading 1,204 documents of the archive",
    "Grouped into 18 topics; the largest has 211 documents",
    "Topic 1 of 18: billing disputes, 2019 to 2026",
    "  a refund was promised in 34 of 211 cases and paid in 31",
    "Topic 2 of 18: cancelled orders",
    "  the reason is missing in a third of them",
]


@dataclass(frozen=True)
class Scene:
    """Addresses of what is worth a picture."""

    item: str
    session: str
    operation: str
    callback: str
    told: str


def person(name: str, password: str) -> None:
    User.objects.create_superuser(name, password=password)


def ago(**length: float) -> datetime:
    return NOW - timedelta(**length)


def job(number: int) -> str:
    return f"orch-{number * 2654435761 % 2**32:08x}{number:024x}"


def play() -> Scene:
    _samples()
    running = _work()
    _acts()
    _upkeep()
    rows.converge()
    operation = BulkOperation.objects.get()
    dead = WebhookDelivery.objects.get(state=WebhookDelivery.DEAD)
    return Scene(
        item=reverse("admin:dispatch_workitem_change", args=[running.pk]),
        session=reverse("admin:sessions_app_session_change", args=[running.session_id]),
        operation=reverse("admin:fleet_bulkoperation_change", args=[operation.pk]),
        callback=reverse("admin:dispatch_webhookdelivery_change", args=[dead.pk]),
        told=reverse("admin:dispatch_workitem_change", args=[dead.work_item_id]),
    )


def _samples() -> None:
    """A day with a peak at noon, an outage of eight minutes, and two partial readings."""
    done = failed = 0
    made = []
    start = NOW.replace(second=0) - timedelta(days=7)
    for minute in range(7 * 24 * 60 + 1):
        at = start + timedelta(minutes=minute)
        load = max(0.0, math.sin((at.hour * 60 + at.minute - 360) / 720 * math.pi))
        wave = math.sin(minute / 17) + 0.6 * math.sin(minute / 5.3)
        done += round(6 + 30 * load + 3 * wave)
        failed += minute % 41 == 0
        back = (NOW - at).total_seconds() / 60
        if 96 <= back < 104 or (back > 48 * 60 and at.minute % 10):
            continue
        ready = max(0, round(4 + 46 * load + 14 * wave + (60 if 20 < back < 45 else 0)))
        unread = 62 <= back < 64
        made.append(
            FleetSample(
                at=at,
                depth=ready + 14,
                ready=None if unread else ready,
                running=min(16, 3 + round(12 * load + wave)),
                workers=8 if back < 500 else 6,
                slots=16 if back < 500 else 12,
                oldest_ready_s=None if unread else round(ready * 1.7, 1),
                completed_total=done,
                failed_total=failed,
                wait_p50_s=round(0.08 + ready * 0.03, 3),
                wait_p95_s=round(0.3 + ready * 0.11, 3),
                run_p95_s=round(42 + 9 * wave, 1),
                evidence="partial" if unread else "healthy",
            )
        )
    FleetSample.objects.bulk_create(made, batch_size=500)
    TurnCounter.objects.create(outcome="completed", count=done)
    TurnCounter.objects.create(outcome="failed", count=failed)


def _work() -> WorkItem:
    """Sessions of two tenants with turns that ended, run, wait, ask and failed; answers the one that talks."""
    number = 0

    def add(of: Session, **more: Any) -> WorkItem:
        nonlocal number
        number += 1
        more.setdefault("agent_name", AGENTS[number % len(AGENTS)])
        return rows.item(of, job_id=job(number), **more)

    held = []
    for place in range(9):
        of = rows.session(
            f"ticket-{4711 + place}", tenant="acme" if place % 3 else "globex", status="active",
            metadata={"domain": "support" if place % 2 else "search"},
        )  # fmt: skip
        for turn in range(place % 3 + 1):
            ended = add(
                of, status="succeeded", task="Sort the mail of the morning", created_at=ago(minutes=90 - turn * 9),
                started_at=ago(minutes=89 - turn * 9), finished_at=ago(minutes=87 - turn * 9), attempt=1,
            )  # fmt: skip
            Turn.objects.create(
                session=of, turn_number=turn + 1, epoch=1, work_item_id=ended.pk, status="succeeded", attempt=1,
                started_at=ended.started_at, finished_at=ended.finished_at,
            )  # fmt: skip
        held.append(
            add(of, status="running", attempt=1, started_at=ago(seconds=40 + 30 * place), task="Summarise the archive")
        )
        add(of, task="Mail the summary", created_at=ago(minutes=3))
    asks = rows.session("garden-shed", tenant="globex", status="needs_input")
    asking = add(asks, status="suspended", suspended_for="input", agent_name="review", created_at=ago(minutes=14))
    Question.objects.create(
        work_item=asking, session=asks, epoch=1, question="Which colour?", choices=["green", "red"],
        asked_at=ago(minutes=13),
    )  # fmt: skip
    paused = rows.session("import-2026", tenant="acme", status="paused", desired="pause", desired_by="bob")
    add(paused, agent_name="index", created_at=ago(minutes=41))
    later = rows.session("retry-me", tenant="acme", status="active")
    add(later, agent_name="index", due_at=NOW + timedelta(minutes=4), attempt=1, created_at=ago(minutes=12))
    for place in range(23):
        of = rows.session(f"nightly-{place:02d}", tenant="acme", status="active", metadata={"domain": "reports"})
        add(of, agent_name="report", task="Report of the night", created_at=ago(seconds=185 - 7 * place))
    for place, message in enumerate(("the vendor answered 503", "the vendor answered 503", "no such account")):
        of = rows.session(f"billing-{place}", tenant="globex", status="failed")
        number += 1
        rows.failed_item(
            of, message=message, job_id=job(number), agent_name="triage", finished_at=ago(minutes=8 * place + 3)
        )
    for place in range(4):
        mine = held[place::4]
        rows.worker(
            *mine, worker_id=f"host-{place + 1}:{4100 + place}:agent-dispatch:0", host=f"host-{place + 1}", capacity=4,
            agents=list(AGENTS), version="0.4.0", alive_s=26_000, beat_s=3 + place, pid=4100 + place,
            queue_backend="SQLiteQueueBackend",
        )  # fmt: skip
    for name in AGENTS:
        KnownAgent.objects.create(name=name, first_seen=ago(days=20), last_seen=ago(seconds=9))
    sent = rows.item(rows.session("import-2025", tenant="acme"), status="succeeded", job_id=job(900), tenant="acme")
    rows.callback(sent, url="https://ci.example.org/hooks", state="delivered", last_status=204, age_s=900)
    rows.callback(sent, url="https://pager.example.org/", last_error="TLS failed", tries=16, age_s=7 * 3600)
    for seconds, event, status in ((70, "submitted", "ready"), (40, "leased", "running")):
        begun = event == "leased"
        WorkItemEvent.objects.create(
            work_item=held[0], at=ago(seconds=seconds), event=event, to_status=status, attempt=begun, epoch=begun,
            worker="7f3a91c2" if begun else "",
        )  # fmt: skip
    for place, text in enumerate(OUTPUT):
        OutputChunk.objects.create(
            work_item=held[0], epoch=1, kind="text", data={"text": f"{text}\n"}, at=ago(seconds=38 - 5 * place)
        )
    OutputChunk.objects.create(
        work_item=held[0],
        epoch=1,
        kind="progress",
        data={"done": 2, "total": 18, "message": "topics"},
        at=ago(seconds=5),
    )
    return held[0]


def _acts() -> None:
    said = [
        (150, "bob", "drain", "worker", "host-2:4101:agent-dispatch:0", "kernel update", "applied"),
        (44, "alice", "shut", "gate", "agent report", "the vendor is down, INC-2291", "applied"),
        (21, "alice", "open", "gate", "agent report", "it is back", "applied"),
        (12, "bob", "pause", "session", "import-2026", "wrong mapping", "applied"),
    ]
    for minutes, actor, verb, kind, name, reason, result in said:
        AuditEntry.objects.create(
            at=ago(minutes=minutes), actor_kind="staff", actor=actor, tenant="acme", verb=verb, object_type=kind,
            object_id=name, reason=reason, result=result,
        )  # fmt: skip
    ClaimGate.objects.create(
        scope="agent", name="index", reason="the index is rebuilt", set_by="alice", set_at=ago(minutes=37)
    )
    names = [f"nightly-{place:02d}" for place in range(12)]
    keys = dict(Session.objects.filter(session_id__in=names).values_list("session_id", "pk"))
    results = [[keys[name], name, "applied" if place else "already"] for place, name in enumerate(names)]
    BulkOperation.objects.create(
        request_id="7f2c", verb="pause", object_type="session", selection={"tenants": ["acme"]}, reason="a drill",
        actor="alice", tenant="acme", total=40, counts={"applied": 11, "already": 1}, results=results,
        status="interrupted", created_at=ago(minutes=55), finished_at=ago(minutes=53),
    )  # fmt: skip


def _upkeep() -> None:
    for name in ("check", "envelopes", "kills", "operations", "registry", "release", "republish", "rescue", "samples"):
        rows.tick(name, age_s=3)
    Leadership.objects.create(role="ticks", holder="host-1:4100", term=7, beat_at=ago(seconds=2))
    for name in ("hourly-report", "nightly-index"):
        rows.schedule(name, tenant="acme", run_s=1400)
    for place in range(2):
        DeadEnvelope.objects.create(
            digest=f"{place:02d}c0ffee{place:056d}", body=b"", size=312 + place, transport="kafka",
            reason="unknown_item", seen_at=ago(hours=3 + place),
        )  # fmt: skip
