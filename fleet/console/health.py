"""The page of the health evidence: what was read, when, what is wrong with it, and who looks after the fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.safestring import SafeString

from dispatch.maintenance.checker import CHECK
from dispatch.models import CheckFinding, Leadership, Tick
from fleet import goals, selectors
from fleet.console.base import moment
from fleet.console.frame import for_staff, framed
from fleet.console.labels import Label, duration, label
from fleet.console.pages import Gate, gates_of, sentence
from fleet.console.roles import Staff, staff_of
from fleet.console.strips import EvidenceStrip, evidence_strip
from fleet.evidence import gather, said_lately, stale_ticks
from fleet.health import CONTROL, GOALS, QUEUE, REGISTRY, Dependency, Evidence
from fleet.reads import Reads
from fleet.samples import samples_since
from fleet.selectors import TickAge

UNREAD = "Whether it has looked lately is unknown: the ticks could not be read."
NOT_LATELY = "It has not looked lately: a leading worker does, with every tick."
STRIP_MIN = 90
FINDINGS = 50
FEEDS = {
    GOALS: "Goals of the fleet page and of the API",
    CONTROL: "Sessions, pauses of claiming, ticks and schedules",
    REGISTRY: "Live workers, their slots, and whether each agent has one",
    QUEUE: "Depth and admission, and that the queue says what the state says",
}
MEANS = {
    "stale_tick": "a periodic duty was not done for three of its periods: look at the log of the worker that should",
    "ticks_never_ran": "no duty was ever done: start a worker without --no-maintenance",
    "items_without_envelope": "jobs that no queue row stands for: the tick republish makes them",
    "envelopes_astray": "queue rows say otherwise than the state: the tick republish mends them",
    "envelopes_without_item": "queue rows of work that has ended: the tick republish removes them",
    "turns_without_worker_unread": "nobody could look whether turns wait for an agent that no live worker has",
    "turns_without_worker": "turns wait for an agent that no live worker has: start one that has it",
    "waiting_for_ended": "jobs wait for jobs that have ended: manage.py check_dispatch names them",
    "head_astray": "a session's head is not its first unfinished turn: manage.py check_dispatch names it",
    "two_live_leases": "two turns of a session hold a lease: manage.py check_dispatch names them",
    "worker_stuck": "a worker has runs that ignore their stop: restart that worker",
    "claiming_paused": "somebody has paused claiming: see Pauses of claiming",
    "schedules_overdue": "schedules should have run and did not: see Schedules",
    "leases_expired": "leases ended and were not reaped: look at the tick rescue",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Diagnostic:
    label: str
    means: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DependencyRow:
    name: str
    label: Label
    feeds: str
    checked: SafeString | str
    succeeded: SafeString | str
    freshness: str
    diagnostics: list[Diagnostic]


@dataclass(frozen=True, kw_only=True, slots=True)
class TickRow:
    name: str
    label: Label
    done: SafeString | str
    started: SafeString | str
    due: SafeString | str
    moved: int
    error: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LeaderRow:
    role: str
    holder: str
    term: int
    label: Label
    beat: SafeString | str


@dataclass(frozen=True, kw_only=True, slots=True)
class FindingRow:
    label: str
    means: str
    count: int
    first: SafeString | str
    last: SafeString | str
    references: list[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthPage:
    """All that the template prints; a list that could not be read is None. `unchecked`: why findings may be old."""

    read_at: datetime
    reach: str
    evidence: Label
    sentence: str
    gates: list[Gate]
    dependencies: list[DependencyRow]
    strip: EvidenceStrip | None
    ticks: list[TickRow] | None
    leaders: list[LeaderRow] | None
    findings: list[FindingRow] | None
    unchecked: str
    sees_all: bool
    body: str


@for_staff(lambda staff: staff.may_view)
def health_view(request: HttpRequest) -> HttpResponse:
    return framed(request, "fleet/health.html", "Health evidence", health_page(staff_of(request)))


def health_page(staff: Staff) -> HealthPage:
    reading = gather(
        read_goals=lambda: goals.goal_counts(tenant=staff.tenants),
        read_sessions=lambda: None,
        tenant=staff.tenants,
    )
    now, evidence = reading.evidence.generated_at, reading.evidence
    with Reads() as reads:
        ticks = reads.attempt("ticks", selectors.ticks_read)
        leaders = reads.attempt("leadership", lambda: list(Leadership.objects.order_by("role")))
        findings = reads.attempt("findings", lambda: list(CheckFinding.objects.order_by("label")[:FINDINGS]))
        samples = reads.attempt("samples", lambda: samples_since(now - timedelta(minutes=STRIP_MIN + 1)))
    ages = [age for _, age in ticks or ()]
    alive_s = max((worker.alive_s for worker in reading.workers or ()), default=0.0)
    return HealthPage(
        read_at=now,
        reach=staff.reach,
        evidence=label(evidence.status),
        sentence=sentence(evidence),
        gates=gates_of(evidence),
        dependencies=_dependencies(evidence),
        strip=None if samples is None else evidence_strip(samples, now, minutes=STRIP_MIN),
        ticks=None if ticks is None else _ticks(ticks, late_ticks(ages, alive_s)),
        leaders=None if leaders is None else [_leader(leader) for leader in leaders],
        findings=None if findings is None else [_finding(row, staff) for row in findings],
        unchecked=UNREAD if ticks is None else _unchecked(ages),
        sees_all=staff.tenants is None,
        body=evidence.model_dump_json(indent=2),
    )


def _dependencies(evidence: Evidence) -> list[DependencyRow]:
    return [_dependency(name, dependency) for name, dependency in evidence.dependencies]


def _dependency(name: str, dependency: Dependency) -> DependencyRow:
    fresh = dependency.freshness_seconds
    return DependencyRow(
        name=name.replace("_", " "),
        label=label(dependency.status),
        feeds=FEEDS[name],
        checked=moment(dependency.checked_at),
        succeeded="not since this process began" if fresh is None else moment(dependency.last_success_at),
        freshness="unknown" if fresh is None else duration(fresh),
        diagnostics=[Diagnostic(label=line, means=_meaning(line)) for line in dependency.diagnostics],
    )


def _meaning(line: str) -> str:
    """What a label says, and what to do; the name of an exception's type is what a read failed with."""
    return MEANS.get(line.partition(":")[0], "the read failed with this")


def late_ticks(ages: Sequence[TickAge], alive_s: float) -> frozenset[str]:
    """As the evidence counts it: only while a worker has lived long enough to do them."""
    if not alive_s:
        return frozenset()
    labels = stale_ticks(ages, alive_s=alive_s, tick_s=settings.FLEETSITE.tick_s)
    return frozenset(line.removeprefix("stale_tick:") for line in labels)


def _unchecked(ages: Sequence[TickAge]) -> str:
    return "" if said_lately(ages, CHECK, tick_s=settings.FLEETSITE.tick_s) else NOT_LATELY


def _ticks(ticks: Sequence[tuple[Tick, TickAge]], late: frozenset[str]) -> list[TickRow]:
    return [
        TickRow(
            name=tick.name,
            label=label("late" if tick.name in late else "failed" if tick.last_error else "on time"),
            done=moment(tick.last_success_at),
            started=moment(tick.last_started_at),
            due=moment(tick.due_at),
            moved=tick.last_count,
            error=tick.last_error,
        )
        for tick, _ in ticks
    ]


def _leader(leader: Leadership) -> LeaderRow:
    silent = timezone.now() - leader.beat_at > timedelta(seconds=3 * settings.FLEETSITE.tick_s + 10)
    return LeaderRow(
        role=leader.role,
        holder=leader.holder[:40],
        term=leader.term,
        label=label("silent" if silent else "leads"),
        beat=moment(leader.beat_at),
    )


def _finding(row: CheckFinding, staff: Staff) -> FindingRow:
    """The rows that it names may be anybody's: who does not see every tenant sees how many."""
    return FindingRow(
        label=row.label,
        means=_meaning(row.label),
        count=row.count,
        first=moment(row.first_seen),
        last=moment(row.last_seen),
        references=[str(one) for one in row.references] if staff.tenants is None else [],
    )
