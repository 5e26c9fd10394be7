"""The bodies of health and topology: what runs where, in exact keys."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from dispatch.access import Caller
from dispatch.api.inputs import SessionStatus
from dispatch.inputs import Input
from fleet import selectors
from fleet.evidence import Reading, gather
from fleet.goals import GoalCounts, goal_counts, goals_active
from fleet.health import Evidence
from fleet.selectors import LiveWorker, SessionCounts, SessionLine
from sessions_app import states as session_states

MAX_LIMIT = 1_000
MAX_OFFSET = 100_000


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class WorkerRow(Body):
    """A live consumer; times are unix seconds. A tenant's key sees its own sessions only."""

    worker_id: str
    host: str
    capacity: int
    active_sessions: list[str]
    queue_backend: str
    started_at: float
    last_heartbeat: float


class SessionTotals(Body):
    total: int
    by_status: dict[str, int]


class GoalTotals(Body):
    active: int
    tracked: int


class DomainTotals(Body):
    total: int
    active: int
    errored: int
    error_rate: float


class HealthBody(Body):
    """A part that could not be read is null."""

    generated_at: datetime
    sessions: SessionTotals | None
    goals: GoalTotals | None
    domains: dict[str, DomainTotals] | None
    dispatch_workers: list[WorkerRow] | None
    evidence: Evidence


class SessionRow(Body):
    id: str
    status: str
    background: bool
    needs_input: bool
    updated_at: datetime


class DomainRow(Body):
    domain: str
    sessions: list[SessionRow]


class GoalRow(Body):
    job_id: str
    objective: str
    status: str
    iteration: int
    max_iterations: int


class Totals(Body):
    """Domains and sessions are those that the filters leave, over all pages."""

    domains: int | None
    sessions: int | None
    dispatch_workers: int | None


class Page(Body):
    limit: int
    offset: int
    returned: int | None


class TopologyBody(Body):
    """A part that could not be read is null."""

    generated_at: datetime
    domains: list[DomainRow] | None
    goals: list[GoalRow] | None
    dispatch_workers: list[WorkerRow] | None
    totals: Totals
    page: Page
    evidence: Evidence


class TopologyQuery(Input):
    """What a caller may ask of the topology. A query string holds texts, so numbers are read from them."""

    model_config = ConfigDict(strict=False)

    limit: int = Field(200, ge=1, le=MAX_LIMIT, description=f"a whole number from 1 to {MAX_LIMIT}")
    offset: int = Field(
        0, ge=0, le=MAX_OFFSET, description=f"0 to {MAX_OFFSET}; narrow by status or domain to see what lies behind"
    )
    status: SessionStatus | None = Field(None, description=f"one of {', '.join(session_states.STATUSES)}")
    domain: str | None = Field(None, min_length=1, max_length=200, description="a text of 1 to 200 characters")


def health_read(*, caller: Caller) -> HealthBody:
    tenant = caller.scope_tenant
    reading = gather(
        read_goals=lambda: goal_counts(tenant=tenant),
        read_sessions=lambda: selectors.session_counts(tenant=tenant),
        tenant=tenant,
        runs_of=tenant,
    )
    sessions, goals = reading.sessions, reading.goals
    return HealthBody(
        generated_at=reading.evidence.generated_at,
        sessions=None if sessions is None else SessionTotals(total=sessions.total, by_status=sessions.by_status()),
        goals=None if goals is None else GoalTotals(active=goals.active, tracked=goals.tracked),
        domains=None if sessions is None else _domain_totals(sessions),
        dispatch_workers=_worker_rows(reading.workers),
        evidence=reading.evidence,
    )


def topology_read(*, caller: Caller, query: TopologyQuery) -> TopologyBody:
    tenant = caller.scope_tenant

    def goals() -> tuple[GoalCounts, list[GoalRow]]:
        rows = goals_active(tenant=tenant)
        return goal_counts(tenant=tenant), [GoalRow(**row) for row in rows]

    def sessions() -> tuple[SessionCounts, list[DomainRow], int]:
        counts = selectors.session_counts(tenant=tenant).matching(status=query.status, domain=query.domain)
        if counts.total <= query.offset:
            return counts, [], 0  # none is there: no need to look through all the others
        rows = selectors.sessions_page(
            tenant=tenant, status=query.status, domain=query.domain, limit=query.limit, offset=query.offset
        )
        return counts, _grouped(rows), len(rows)

    reading: Reading[tuple[GoalCounts, list[GoalRow]], tuple[SessionCounts, list[DomainRow], int]] = gather(
        read_goals=goals, read_sessions=sessions, tenant=tenant, runs_of=tenant
    )
    counts, domains, returned = reading.sessions if reading.sessions is not None else (None, None, None)
    workers = _worker_rows(reading.workers)
    return TopologyBody(
        generated_at=reading.evidence.generated_at,
        domains=domains,
        goals=reading.goals[1] if reading.goals is not None else None,
        dispatch_workers=workers,
        totals=Totals(
            domains=None if counts is None else len(counts.by_domain()),
            sessions=None if counts is None else counts.total,
            dispatch_workers=None if workers is None else len(workers),
        ),
        page=Page(limit=query.limit, offset=query.offset, returned=returned),
        evidence=reading.evidence,
    )


def _domain_totals(sessions: SessionCounts) -> dict[str, DomainTotals]:
    domains = {}
    for domain, counts in sessions.by_domain().items():
        total, errored = sum(counts.values()), counts.get(session_states.FAILED, 0)
        domains[domain] = DomainTotals(
            total=total,
            active=counts.get(session_states.ACTIVE, 0),
            errored=errored,
            error_rate=round(errored / total, 4),
        )
    return domains


def _grouped(lines: list[SessionLine]) -> list[DomainRow]:
    """The page's rows under their domains, in the order in which they came."""
    groups: dict[str, list[SessionRow]] = {}
    for line in lines:
        row = SessionRow(
            id=line.session_id,
            status=line.status,
            background=line.background,
            needs_input=line.status == session_states.NEEDS_INPUT,
            updated_at=line.updated_at,
        )
        groups.setdefault(line.domain, []).append(row)
    return [DomainRow(domain=domain, sessions=sessions) for domain, sessions in groups.items()]


def _worker_rows(workers: list[LiveWorker] | None) -> list[WorkerRow] | None:
    if workers is None:
        return None
    return [
        WorkerRow(
            worker_id=worker.worker_id,
            host=worker.host,
            capacity=worker.capacity,
            active_sessions=[run.session_id for run in worker.runs],
            queue_backend=worker.queue_backend,
            started_at=worker.started_at.timestamp(),
            last_heartbeat=worker.last_heartbeat.timestamp(),
        )
        for worker in workers
    ]
