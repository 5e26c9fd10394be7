"""The fleet page: what the console opens with. A part that could not be read is "unknown", never 0."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from dispatch.gates import gates_from
from dispatch.wording import gate_words
from fleet import selectors
from fleet.console.attention import Attention, attempt, attention
from fleet.console.labels import BAD, QUIET, Label, duration, label
from fleet.console.roles import Staff, staff_of
from fleet.evidence import Reading, gather
from fleet.failures import Failure, Failures, failed_jobs
from fleet.health import Evidence
from fleet.reads import Reads
from fleet.selectors import GoalCounts, LiveWorker, ReadyTurns

UNKNOWN = "unknown"
MAX_ROWS = 12
MAX_MESSAGE = 160  # characters of an error


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    title: str
    value: str
    note: str
    href: str = ""
    variant: str = QUIET


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    name: str
    open: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class DependencyLine:
    name: str
    label: Label
    note: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RunLine:
    session_id: str
    session_href: str
    job_id: str
    job_href: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerLine:
    worker_id: str
    host: str
    label: Label
    beat: str
    slots: str
    others: int  # runs of tenants that the reader does not see
    runs: list[RunLine]


@dataclass(frozen=True, kw_only=True, slots=True)
class FailureLine:
    job_id: str
    href: str
    session_id: str
    agent_name: str
    label: Label
    code: str
    message: str
    ended: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetPage:
    """All that the template prints. `workers`, `failures` and `pauses` are None when they could not be read."""

    read_at: datetime
    reach: str
    evidence: Label
    sentence: str
    gates: list[Gate]
    dependencies: list[DependencyLine]
    tiles: list[Tile]
    workers: list[WorkerLine] | None
    more_workers: int
    failures: list[FailureLine] | None
    attention: Attention
    audit_href: str
    pauses: list[str] | None
    pauses_href: str


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Unfold's callback for the index of the console."""
    staff = staff_of(request)
    if staff.may_view:
        context["fleet_page"] = fleet_page(staff)
    return context


def fleet_page(staff: Staff) -> FleetPage:
    reading: Reading[GoalCounts, None] = gather(
        read_goals=lambda: selectors.goal_counts(tenant=staff.tenants),
        read_sessions=lambda: None,  # this page counts no sessions; the control store has more to show that it answers
        tenant=staff.tenants,
    )
    now = reading.evidence.generated_at
    gates = None if reading.gates is None else gates_from([(gate.scope, gate.name) for gate in reading.gates])
    with Reads() as reads:
        ready = attempt(reads, "ready", lambda: selectors.ready_turns(tenant=staff.tenants, gates=gates))
        failures = attempt(reads, "failures", lambda: failed_jobs(tenant=staff.tenants, limit=MAX_ROWS))
        seen = attention(staff, now, reads)
    return FleetPage(
        read_at=now,
        reach="all tenants" if staff.tenants is None else ", ".join(sorted(staff.tenants)) or "no tenant",
        evidence=label(reading.evidence.status),
        sentence=_sentence(reading.evidence),
        gates=[
            Gate(name="Ready", open=reading.evidence.ready),
            Gate(name="Autoscaling", open=reading.evidence.autoscaling_ready),
            Gate(name="Convergence", open=reading.evidence.convergence_ready),
        ],
        dependencies=_dependencies(reading.evidence),
        tiles=_tiles(staff, reading, ready, failures, seen.running),
        workers=None
        if reading.workers is None
        else [_worker(worker, staff, now) for worker in _busiest(reading.workers)[:MAX_ROWS]],
        more_workers=max(0, len(reading.workers or ()) - MAX_ROWS),
        failures=None if failures is None else [_failure(failure, now) for failure in failures.latest],
        attention=seen,
        audit_href=reverse("admin:sessions_app_auditentry_changelist"),
        pauses=None if reading.gates is None else [gate_words(gate, now) for gate in reading.gates[:MAX_ROWS]],
        pauses_href=reverse("admin:dispatch_claimgate_changelist"),
    )


def _sentence(evidence: Evidence) -> str:
    if evidence.status == "healthy":
        return "Every part was read and nothing is impaired."
    reasons = "; ".join(line.replace("_", " ") for line in evidence.diagnostics)
    return {
        "degraded": f"Usable, but impaired: {reasons}.",
        "partial": f"Some parts could not be read: {reasons}. What they feed is unknown.",
        "unavailable": f"Nothing could be read: {reasons}.",
    }[evidence.status]


def _dependencies(evidence: Evidence) -> list[DependencyLine]:
    lines = []
    for name, dependency in evidence.dependencies:
        fresh = dependency.freshness_seconds
        note = "not read yet" if fresh is None else f"read {duration(fresh)} ago"
        if dependency.diagnostics:
            note = f"{note}; {', '.join(dependency.diagnostics)}"
        lines.append(DependencyLine(name=name.replace("_", " "), label=label(dependency.status), note=note))
    return lines


def _tiles(
    staff: Staff,
    reading: Reading[GoalCounts, None],
    ready: ReadyTurns | None,
    failures: Failures | None,
    running: int | None,
) -> list[Tile]:
    items = reverse("admin:dispatch_workitem_changelist")
    workers = reading.workers
    slots = UNKNOWN if workers is None else f"{sum(len(w.runs) for w in workers)} of {sum(w.capacity for w in workers)}"
    oldest = "oldest unknown" if ready is None else "none claimable"
    if ready is not None and ready.oldest_s is not None:
        oldest = f"{ready.count} claimable, oldest {duration(ready.oldest_s)}"
    waiting = Tile(title="Queue depth", value=_number(reading.depth), note=oldest, href=items)
    if staff.tenants is not None:  # depth is the whole store's: not for one tenant's people
        waiting = Tile(
            title="Claimable", value=_number(None if ready is None else ready.count), note=oldest, href=items
        )
    failed = None if failures is None else failures.count
    return [
        Tile(
            title="Live workers",
            value=_number(None if workers is None else len(workers)),
            note=f"slots taken: {slots}",
            href=reverse("admin:dispatch_dispatchworker_changelist"),
        ),
        Tile(
            title="Running turns",
            value=_number(running),
            note="holding a lease",
            href=f"{items}?state=running",
        ),
        waiting,
        Tile(
            title="Failures",
            value=_number(failed),
            note="among the newest 10,000 jobs",
            href=f"{items}?state=ended_badly",
            variant=BAD if failed else QUIET,
        ),
    ]


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _busiest(workers: list[LiveWorker]) -> list[LiveWorker]:
    return sorted(workers, key=lambda worker: (-len(worker.runs), worker.worker_id))


def _worker(worker: LiveWorker, staff: Staff, now: datetime) -> WorkerLine:
    seen = [run for run in worker.runs if staff.sees(run.tenant)]
    stuck = f", {worker.stuck} stuck" if worker.stuck else ""
    return WorkerLine(
        worker_id=worker.worker_id,
        host=worker.host,
        label=label("draining" if worker.draining else "live"),
        beat=f"{duration((now - worker.last_heartbeat).total_seconds())} ago",
        slots=f"{len(worker.runs)} of {worker.capacity}{stuck}",
        others=len(worker.runs) - len(seen),
        runs=[
            RunLine(
                session_id=run.session_id,
                session_href=_search("admin:sessions_app_session_changelist", run.session_id),
                job_id=run.job_id,
                job_href=_search("admin:dispatch_workitem_changelist", run.job_id),
            )
            for run in seen
        ],
    )


def _failure(failure: Failure, now: datetime) -> FailureLine:
    return FailureLine(
        job_id=failure.job_id,
        href=reverse("admin:dispatch_workitem_change", args=[failure.pk]),
        session_id=failure.session_id,
        agent_name=failure.agent_name,
        label=label(failure.status),
        code=failure.code,
        message=failure.message[:MAX_MESSAGE],
        ended=f"{duration((now - failure.finished_at).total_seconds())} ago",
    )


def _search(page: str, text: str) -> str:
    return f"{reverse(page)}?{urlencode({'q': text})}"
