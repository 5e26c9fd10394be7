"""What is unfinished, by kind, agent and tenant, and what it waits for: reads of the queue page.

They look at the state store alone, whose rows are the truth, so that they are the same with every transport. Each reads
the oldest 10,000 unfinished jobs at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Case, CharField, Count, F, Max, Min, Q, QuerySet, Value, When
from django.db.models.functions import Now

from dispatch import states
from dispatch.models import DeadEnvelope, WorkItem
from fleet.selectors import Tenants, scoped
from sessions_app import states as session_states

WINDOW = 10_000  # unfinished jobs looked at
RUNNING, READY, BEHIND, LATER, PAUSED, DEPENDS, ANSWER, CHILDREN = WAITS = (
    "running",
    "ready",
    "behind a turn",
    "not yet due",
    "session paused",
    "waits for jobs",
    "waits for an answer",
    "waits for child jobs",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lane:
    """Unfinished jobs of one kind, agent and tenant. `oldest_ready_s`: of those that a worker could claim."""

    kind: str
    agent_name: str
    tenant: str
    counts: dict[str, int]
    oldest_ready_s: float | None

    @property
    def total(self) -> int:
        return sum(self.counts.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Lanes:
    """`is_whole`: all unfinished jobs were looked at."""

    lanes: list[Lane]
    is_whole: bool

    def total(self, state: str) -> int:
        return sum(lane.counts.get(state, 0) for lane in self.lanes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Waiting:
    """A job at the head of its session that does not run."""

    pk: int
    job_id: str
    session_id: str
    agent_name: str
    tenant: str
    state: str
    since: datetime
    age_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Dead:
    """Messages that no work item stands behind. `count` goes no further than 10,000."""

    count: int
    newest: list[DeadEnvelope]


def lanes(*, tenant: Tenants) -> Lanes:
    """By kind, agent and tenant, the fullest first."""
    rows = (
        _window(tenant)
        .order_by()
        .values("kind", "agent_name", "tenant", "wait")
        .annotate(count=Count("*"), since=Min("began"), read_at=Max(Now()))
    )
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        lane = found.setdefault((row["kind"], row["agent_name"], row["tenant"]), {"counts": {}, "oldest": None})
        lane["counts"][row["wait"]] = row["count"]
        if row["wait"] == READY:
            lane["oldest"] = max(0.0, (row["read_at"] - row["since"]).total_seconds())
    made = [
        Lane(kind=kind, agent_name=agent, tenant=of, counts=lane["counts"], oldest_ready_s=lane["oldest"])
        for (kind, agent, of), lane in found.items()
    ]
    made.sort(key=lambda lane: (-lane.total, lane.agent_name, lane.tenant))
    return Lanes(lanes=made, is_whole=sum(lane.total for lane in made) < WINDOW)


def longest_waiting(*, tenant: Tenants, limit: int) -> list[Waiting]:
    """Heads of sessions that do not run, in the order of their admission."""
    heads = _window(tenant).exclude(wait__in=[RUNNING, BEHIND]).annotate(read_at=Now()).order_by("pk")[:limit]
    return [
        Waiting(
            pk=row["pk"],
            job_id=row["job_id"],
            session_id=row["session__session_id"],
            agent_name=row["agent_name"],
            tenant=row["tenant"],
            state=row["wait"],
            since=row["began"],
            age_s=max(0.0, (row["read_at"] - row["began"]).total_seconds()),
        )
        for row in heads.values(
            "pk", "job_id", "session__session_id", "agent_name", "tenant", "wait", "began", "read_at"
        )
    ]


def dead_envelopes(*, limit: int) -> Dead:
    newest = DeadEnvelope.objects.order_by("-pk").defer("body")
    return Dead(count=newest.order_by()[:WINDOW].count(), newest=list(newest[:limit]))


def _window(tenant: Tenants) -> QuerySet[Any]:
    """The oldest unfinished jobs, found in the partial index of those, each with what it waits for and since when."""
    unfinished = scoped(WorkItem.objects.filter(finished_at__isnull=True), tenant)
    # said twice, so that the outer rows too are looked for in that index, and not among all that ever were
    oldest = unfinished.filter(pk__in=unfinished.order_by("pk").values("pk")[:WINDOW])
    return oldest.annotate(
        wait=Case(*_cases(), default=Value(READY), output_field=CharField()),
        began=Case(When(due_at__isnull=False, due_at__lte=Now(), then=F("due_at")), default=F("created_at")),
    )


def _cases() -> Sequence[When]:
    head = Q(session_seq=F("session__head_seq"))
    return [
        When(status__in=sorted(states.LIVE), then=Value(RUNNING)),
        When(status=states.SUSPENDED, suspended_for="children", then=Value(CHILDREN)),
        When(status=states.SUSPENDED, then=Value(ANSWER)),
        When(status=states.SUBMITTED, then=Value(DEPENDS)),
        When(~head, then=Value(BEHIND)),
        When(session__desired=session_states.PAUSE, then=Value(PAUSED)),
        When(due_at__gt=Now(), then=Value(LATER)),
    ]
