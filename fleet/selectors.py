"""Reads of the fleet: counts, live workers, ticks and pages of sessions.

`tenant` is one tenant, several, or None for all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.db.models import Count, Exists, F, Max, Min, Model, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce, Now

from dispatch import states, wiring
from dispatch.clock import store_now
from dispatch.gatekeeping import concerning
from dispatch.gates import read_gates
from dispatch.maintenance.ticks import REPAIR_SHARE
from dispatch.models import (
    CheckFinding,
    ClaimGate,
    DispatchWorker,
    PruneTotal,
    QueuedTurn,
    Tick,
    TurnCounter,
    WorkItem,
)
from dispatch.ports import Gates
from fleet.runs import Run, runs_by_token, stuck_runs
from sessions_app import states as session_states
from sessions_app.models import Session

MAX_WORKERS = 10_000

Tenants = str | Collection[str] | None

M = TypeVar("M", bound=Model)


def scoped(queryset: QuerySet[M], tenant: Tenants, *, path: str = "tenant") -> QuerySet[M]:
    """The rows of a tenant, of several, or with None all of them; `path` leads to the tenant of a row."""
    if tenant is None:
        return queryset
    return queryset.filter(**{path if isinstance(tenant, str) else f"{path}__in": tenant})


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionCounts:
    """Sessions by domain and status."""

    rows: tuple[tuple[str, str, int], ...]

    def by_status(self) -> dict[str, int]:
        """Every status, those with no session too."""
        counts = dict.fromkeys(session_states.STATUSES, 0)
        for _, status, count in self.rows:
            counts[status] += count
        return counts

    def by_domain(self) -> dict[str, dict[str, int]]:
        domains: dict[str, dict[str, int]] = {}
        for domain, status, count in self.rows:
            domains.setdefault(domain, {})[status] = count
        return domains

    def matching(self, *, status: str | None = None, domain: str | None = None) -> SessionCounts:
        return SessionCounts(
            rows=tuple(row for row in self.rows if status in (None, row[1]) and domain in (None, row[0]))
        )

    @property
    def total(self) -> int:
        return sum(count for _, _, count in self.rows)


def session_counts(*, tenant: Tenants) -> SessionCounts:
    rows = (
        scoped(Session.objects.all(), tenant)
        .order_by("domain", "status")
        .values_list("domain", "status")
        .annotate(count=Count("*"))
    )
    return SessionCounts(rows=tuple(rows))


def sessions_readable() -> None:
    """Touch the table of sessions, for callers that need its state and not its counts."""
    Session.objects.order_by("pk").values_list("pk", flat=True).first()


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionLine:
    """One session of a page."""

    domain: str
    session_id: str
    status: str
    background: bool
    updated_at: datetime


def sessions_page(
    *, tenant: Tenants, status: str | None, domain: str | None, limit: int, offset: int
) -> list[SessionLine]:
    """A page in the order (domain, session id, key), which does not move while rows change."""
    rows = scoped(Session.objects.all(), tenant)
    if status is not None:
        rows = rows.filter(status=status)
    if domain is not None:
        rows = rows.filter(domain=domain)
    order = ("domain", "session_id", "pk")
    page = rows.order_by(*order)[offset : offset + limit]
    if status is None and not isinstance(tenant, str):
        # what lies before the page is skipped in the index alone, and only the page's rows are fetched
        page = Session.objects.filter(pk__in=page.values("pk")).order_by(*order)
    return [SessionLine(**row) for row in page.values("domain", "session_id", "status", "background", "updated_at")]


@dataclass(frozen=True, kw_only=True, slots=True)
class LiveWorker:
    """A consumer whose heartbeat is newer than AGENT_WORKER_STALE_S. `alive_s` is told by the store's clock."""

    worker_id: str
    host: str
    capacity: int
    runs: tuple[Run, ...]
    stuck: int
    queue_backend: str
    version: str
    agents: tuple[str, ...]
    started_at: datetime
    last_heartbeat: datetime
    draining: bool
    alive_s: float


def workers_live(*, runs_of: Tenants = None) -> list[LiveWorker]:
    """The live consumers, by worker id. Ages are told by the database's clock, which stamped the rows.

    `runs` are those of `runs_of`, at most 50,000 of all workers, by the leases of now and not by the last heartbeat;
    what is stuck holds no lease, and is what its worker reported.
    """
    stale = timedelta(seconds=settings.FLEETSITE.worker_stale_s)
    # the newest heartbeats: however many silent ones are kept, they hide no live one
    rows: list[Any] = list(DispatchWorker.objects.annotate(read_at=Now()).order_by("-last_heartbeat")[:MAX_WORKERS])
    live = sorted((row for row in rows if row.last_heartbeat > row.read_at - stale), key=lambda row: str(row.worker_id))
    leased = scoped(WorkItem.objects.filter(status__in=sorted(states.LIVE)), runs_of)
    runs = runs_by_token(leased) if live else {}
    return [_worker(row, [*runs.get(row.token, ()), *stuck_runs(row, runs_of)]) for row in live]


def workers_silent() -> int:
    """Registered consumers whose heartbeat is older than AGENT_WORKER_STALE_S; their rows are kept for a day."""
    heard = store_now() - timedelta(seconds=settings.FLEETSITE.worker_stale_s)
    return DispatchWorker.objects.filter(last_heartbeat__lte=heard).count()


def _worker(row: Any, runs: Iterable[Run]) -> LiveWorker:
    return LiveWorker(
        worker_id=row.worker_id,
        host=row.host,
        capacity=row.capacity,
        runs=tuple(runs),
        stuck=row.stuck,
        queue_backend=row.queue_backend,
        version=row.version,
        agents=tuple(row.agents),
        started_at=row.started_at,
        last_heartbeat=row.last_heartbeat,
        draining=row.draining,
        alive_s=(row.read_at - row.started_at).total_seconds(),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TickAge:
    """How late a periodic duty is. `undone_s`: since it was done, or since its round began; null when it never was.

    `period_s` is what its own rounds make it: one that takes long is done less often.
    """

    name: str
    period_s: float
    overdue_s: float
    undone_s: float | None
    findings: bool = False  # whether the last check of the store found anything


def tick_ages() -> list[TickAge]:
    return [age for _, age in ticks_read()]


def ticks_read() -> list[tuple[Tick, TickAge]]:
    ticks = Tick.objects.annotate(read_at=Now(), findings=Exists(CheckFinding.objects.all())).order_by("name")
    return [(tick, _tick_age(tick, tick.read_at, findings=tick.findings)) for tick in ticks]


def _tick_age(tick: Tick, now: datetime, *, findings: bool) -> TickAge:
    started, success = tick.last_started_at, tick.last_success_at
    period, done = 0.0, success
    if started is not None:
        period = (tick.due_at - started).total_seconds()
        if success is not None and success >= started:
            period = max(period, (success - started).total_seconds() * REPAIR_SHARE)
        elif not tick.last_error:
            done = started
    return TickAge(
        name=tick.name,
        period_s=period,
        overdue_s=(now - tick.due_at).total_seconds(),
        undone_s=None if done is None else (now - done).total_seconds(),
        findings=findings,
    )


def check_findings() -> frozenset[str]:
    """Labels of what the leader's last whole check found, whenever that was."""
    return frozenset(CheckFinding.objects.values_list("label", flat=True))


def gates_shut(*, tenant: Tenants) -> list[ClaimGate]:
    """Pauses of claiming that concern a tenant: of the fleet, kinds and agents, and its own."""
    gates = ClaimGate.objects.order_by("scope", "name")
    if tenant is None:
        return list(gates)
    return list(concerning(gates, [tenant] if isinstance(tenant, str) else tenant))


def gate_totals() -> dict[str, int]:
    """Pauses of claiming by scope, all scopes present."""
    counts = ClaimGate.objects.order_by().values_list("scope").annotate(count=Count("*"))
    return dict.fromkeys(ClaimGate.SCOPES, 0) | dict(counts)


def turn_totals() -> dict[str, int]:
    """Turns that ended, by outcome, all outcomes present."""
    totals = dict.fromkeys(states.COUNTER_OUTCOMES, 0)
    rows = TurnCounter.objects.filter(outcome__in=states.COUNTER_OUTCOMES).order_by().values_list("outcome")
    return totals | dict(rows.annotate(total=Sum("count")))


def pruned_totals() -> dict[str, int]:
    """Rows that retention has deleted, by table; a table of which none ever went has no entry."""
    return dict(PruneTotal.objects.order_by("table").values_list("table", "rows"))


def retention_age_s() -> float | None:
    """Seconds since a round of retention last ended well; None when none ever did."""
    tick = Tick.objects.annotate(read_at=Now()).filter(name="retention").first()
    if tick is None or tick.last_success_at is None:
        return None
    return max(0.0, (tick.read_at - tick.last_success_at).total_seconds())


def running_count(*, tenant: Tenants) -> int:
    """Turns that hold a lease; counted in the partial index that refuses a second one."""
    return scoped(WorkItem.objects.filter(status__in=sorted(states.LIVE)), tenant).count()


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadyTurns:
    """Turns that a worker could claim now, at most one a session, and how long the oldest has waited."""

    count: int
    oldest_s: float | None


def turns_without_worker(workers: Iterable[LiveWorker]) -> int:
    """Turns at the head of their session whose agent none of these has, or has any more: a pool is missing.

    Where the queue lives in the state store they are counted in its claim index, which leaves out those whose time has
    not come.
    """
    served = {name for worker in workers if not worker.draining for name in worker.agents}
    if _queue_in_store():
        return _claimable(Gates()).exclude(agent_name__in=served).count()
    heads = WorkItem.objects.filter(
        finished_at__isnull=True,
        status=states.READY,
        kind__in=states.KINDS,
        session_seq=F("session__head_seq"),
    )
    return heads.exclude(agent_name__in=served).count()


def _queue_in_store() -> bool:
    return wiring.transport().capabilities.rows_in_store


def _claimable(gates: Gates) -> QuerySet[QueuedTurn]:
    """What a worker could claim now, at most one turn a session."""
    return QueuedTurn.objects.filter(_unshut(gates), state=states.QueueState.CLAIMABLE)


def ready_turns(*, tenant: Tenants, gates: Gates | None = None) -> ReadyTurns:
    """Count them in the queue's claim index where the queue lives in the state store, else by the heads of sessions.

    What a gate holds is not claimable; the gates are read here unless the caller has read them.
    """
    if gates is None:
        gates = read_gates()
    if gates.fleet:
        return ReadyTurns(count=0, oldest_s=None)
    return _ready_in_queue(tenant, gates) if _queue_in_store() else _ready_heads(tenant, gates)


def ready_lanes(*, tenant: Tenants) -> list[tuple[str, str, int]]:
    """Claimable turns by (agent, tenant): for who looks at limits, which most fleets have none of."""
    gates = read_gates()
    if gates.fleet:
        return []
    if _queue_in_store():
        rows: Any = _claimable(gates)
    else:
        rows = WorkItem.objects.filter(
            Q(due_at=None) | Q(due_at__lte=Now()),
            _unshut(gates),
            status=states.READY,
            finished_at__isnull=True,
            session_seq=F("session__head_seq"),
            session__desired=session_states.RUN,
        )
    return list(scoped(rows, tenant).order_by().values_list("agent_name", "tenant").annotate(count=Count("*")))


def _unshut(gates: Gates) -> Q:
    kinds = [kind for kind in states.KINDS if kind not in gates.kinds]
    return Q(kind__in=kinds) & ~Q(agent_name__in=gates.agents) & ~Q(tenant__in=gates.tenants)


def _ready_in_queue(tenant: Tenants, gates: Gates) -> ReadyTurns:
    claimable = scoped(_claimable(gates), tenant)
    rows = list(
        claimable.order_by().values("priority").annotate(count=Count("*"), first=Min("rank"), read_at=Max(Now()))
    )
    # the rank is the moment it became claimable, put back by its priority
    ages = [(row["read_at"] - row["first"]).total_seconds() + row["priority"] * states.AGING_STEP_S for row in rows]
    return ReadyTurns(count=sum(row["count"] for row in rows), oldest_s=_oldest(ages))


def _ready_heads(tenant: Tenants, gates: Gates) -> ReadyTurns:
    # from the sessions to their one head each: the other way round would walk every item that ever was
    head = WorkItem.objects.filter(
        Q(due_at=None) | Q(due_at__lte=Now()),
        _unshut(gates),
        session=OuterRef("pk"),
        session_seq=OuterRef("head_seq"),
        status=states.READY,
    )
    sessions = scoped(Session.objects.filter(head_seq__isnull=False, desired=session_states.RUN), tenant)
    row = (
        sessions.annotate(since=Subquery(head.values(at=Coalesce("due_at", "created_at"))[:1]))
        .filter(since__isnull=False)
        .aggregate(count=Count("*"), first=Min("since"), read_at=Max(Now()))
    )
    ages = [(row["read_at"] - row["first"]).total_seconds()] if row["count"] else []
    return ReadyTurns(count=row["count"], oldest_s=_oldest(ages))


def _oldest(ages: list[float]) -> float | None:
    return round(max(0.0, *ages), 3) if ages else None
