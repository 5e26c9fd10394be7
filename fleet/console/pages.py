"""The fleet page: what the console opens with. A part that could not be read is "unknown", never 0."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from dispatch.gates import shut_by
from dispatch.wording import gate_words
from fleet import goals, selectors
from fleet.console.attention import Attention, attention
from fleet.console.charts import Span, rate
from fleet.console.content import text_for
from fleet.console.gates import pause_href
from fleet.console.graphs import Graphs, graphs, read_samples, span_asked
from fleet.console.labels import BAD, QUIET, Label, ago, duration, label
from fleet.console.roles import Staff, staff_of
from fleet.console.tiles import UNKNOWN, Tile, number
from fleet.console.trends import flow, moved, stalled
from fleet.evidence import Reading, gather
from fleet.failures import Cause, Failures, failed_jobs
from fleet.goals import GoalCounts
from fleet.health import Evidence
from fleet.models import FleetSample
from fleet.reads import Reads
from fleet.selectors import LiveWorker, ReadyTurns

MAX_ROWS = 12
MAX_MESSAGE = 160  # characters of an error


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
class CauseLine:
    cause: str
    count: int
    since: str  # of the first of them, when there are several
    agent_name: str
    label: Label
    job_id: str
    href: str
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
    failures: list[CauseLine] | None
    grouped: int
    attention: Attention
    audit_href: str
    pauses: list[str] | None
    pauses_href: str
    pause_href: str  # the form that pauses the fleet; "" for who may not
    graphs: Graphs | None  # of the whole fleet, for who sees every tenant


def dashboard(request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    """Unfold's callback for the index of the console."""
    staff = staff_of(request)
    if staff.may_view:
        context["fleet_page"] = fleet_page(staff, span_asked(request))
    return context


def fleet_page(staff: Staff, span: Span) -> FleetPage:
    reading: Reading[GoalCounts, None] = gather(
        read_goals=lambda: goals.goal_counts(tenant=staff.tenants),
        read_sessions=lambda: None,  # this page counts no sessions; the control store has more to show that it answers
        tenant=staff.tenants,
    )
    now = reading.evidence.generated_at
    gates = None if reading.gates is None else shut_by(reading.gates)
    with Reads() as reads:
        ready = reads.attempt("ready", lambda: selectors.ready_turns(tenant=staff.tenants, gates=gates))
        failures = reads.attempt("failures", lambda: failed_jobs(tenant=staff.tenants))
        samples = reads.attempt("samples", lambda: read_samples(span, now)) if staff.tenants is None else None
        seen = attention(staff, now, reads, is_stalled=stalled(samples or [], now))
    return FleetPage(
        read_at=now,
        reach=staff.reach,
        evidence=label(reading.evidence.status),
        sentence=sentence(reading.evidence),
        gates=gates_of(reading.evidence),
        dependencies=_dependencies(reading.evidence),
        tiles=_tiles(staff, reading, ready, failures, seen, samples),
        workers=None
        if reading.workers is None
        else [_worker(worker, staff, now) for worker in _busiest(reading.workers)[:MAX_ROWS]],
        more_workers=max(0, len(reading.workers or ()) - MAX_ROWS),
        failures=None if failures is None else [_cause(cause, staff, now) for cause in failures.causes[:MAX_ROWS]],
        grouped=0 if failures is None else failures.grouped,
        attention=seen,
        audit_href=reverse("admin:sessions_app_auditentry_changelist"),
        pauses=None if reading.gates is None else [gate_words(gate, now) for gate in reading.gates[:MAX_ROWS]],
        pauses_href=reverse("admin:dispatch_claimgate_changelist"),
        pause_href=pause_href("fleet", "") if staff.may_steer_all else "",
        graphs=graphs(samples, span, now, seen.marks) if staff.tenants is None else None,
    )


def gates_of(evidence: Evidence) -> list[Gate]:
    return [
        Gate(name="Ready", open=evidence.ready),
        Gate(name="Autoscaling", open=evidence.autoscaling_ready),
        Gate(name="Convergence", open=evidence.convergence_ready),
    ]


def sentence(evidence: Evidence) -> str:
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
    seen: Attention,
    samples: list[FleetSample] | None,
) -> list[Tile]:
    items, now = reverse("admin:dispatch_workitem_changelist"), reading.evidence.generated_at
    running, silent = seen.running, seen.silent
    known, workers = samples or [], reading.workers
    live = None if workers is None else len(workers)
    count = None if ready is None else ready.count
    slots = UNKNOWN if workers is None else f"{sum(len(w.runs) for w in workers)} of {sum(w.capacity for w in workers)}"
    failed = None if failures is None else failures.count
    tiles = [
        Tile(
            title="Ready",
            value=number(count),
            note=_oldest(ready),
            trend=moved(known, now, count, lambda sample: sample.ready),
            href=reverse("console:queue"),
        ),
        Tile(
            title="Running turns",
            value=number(running),
            note=f"slots taken: {slots}",
            trend=moved(known, now, running, lambda sample: sample.running),
            href=f"{items}?state=running",
        ),
        Tile(
            title="Live workers",
            value=number(live),
            note=f"and {silent} silent" if silent else "that report",
            variant=BAD if silent else QUIET,
            trend=moved(known, now, live, lambda sample: sample.workers),
            href=reverse("admin:dispatch_dispatchworker_changelist"),
        ),
        Tile(
            title="Failures",
            value=number(failed),
            note="among the newest 10,000 jobs",
            href=f"{items}?state=ended_badly",
            variant=BAD if failed else QUIET,
        ),
    ]
    if staff.tenants is None:  # of the whole store: not for one tenant's people
        tiles[1:1] = [_depth(reading.depth, known, now)]
        tiles[4:4] = [_throughput(samples, now)]
    return tiles


def _oldest(ready: ReadyTurns | None) -> str:
    if ready is None:
        return "oldest unknown"
    return "none claimable" if ready.oldest_s is None else f"the oldest waits {duration(ready.oldest_s)}"


def _depth(depth: int | None, samples: list[FleetSample], now: datetime) -> Tile:
    return Tile(
        title="Queue depth",
        value=number(depth),
        note="unfinished and not suspended",
        trend=moved(samples, now, depth, lambda sample: sample.depth),
        href=reverse("console:queue"),
    )


def _throughput(samples: list[FleetSample] | None, now: datetime) -> Tile:
    seen = flow(samples or [], now)
    share = "nothing ended" if seen.failed_share is None else f"{seen.failed_share:.0%} failed"
    return Tile(
        title="Done / min",
        value=UNKNOWN if seen.done_per_min is None else rate(seen.done_per_min),
        note=f"over 15 min; {share}" if seen.done_per_min is not None else "it takes 15 min of samples",
        href=f"{reverse('admin:dispatch_workitem_changelist')}?state=succeeded",
    )


def _busiest(workers: list[LiveWorker]) -> list[LiveWorker]:
    return sorted(workers, key=lambda worker: (-len(worker.runs), worker.worker_id))


def _worker(worker: LiveWorker, staff: Staff, now: datetime) -> WorkerLine:
    seen = [run for run in worker.runs if staff.sees(run.tenant)]
    stuck = f", {worker.stuck} stuck" if worker.stuck else ""
    return WorkerLine(
        worker_id=worker.worker_id,
        host=worker.host,
        label=label("draining" if worker.draining else "live"),
        beat=ago(worker.last_heartbeat, now),
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


def _cause(cause: Cause, staff: Staff, now: datetime) -> CauseLine:
    newest = cause.newest
    return CauseLine(
        # the type is the first word of a text
        cause=f"{newest.code}: {newest.error_type}" if newest.error_type and staff.may_read_content else newest.code,
        count=cause.count,
        since=ago(cause.since, now) if cause.count > 1 else "",
        agent_name=newest.agent_name,
        label=label(newest.status),
        job_id=newest.job_id,
        href=reverse("admin:dispatch_workitem_change", args=[newest.pk]),
        message=text_for(staff, newest.message, most=MAX_MESSAGE),
        ended=ago(newest.finished_at, now),
    )


def _search(page: str, text: str) -> str:
    return f"{reverse(page)}?{urlencode({'q': text})}"
