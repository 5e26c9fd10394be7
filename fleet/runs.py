"""Which turns a worker runs now: by the leases, and by its own word what is stuck."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import QuerySet

from dispatch.models import DispatchWorker, WorkItem

MAX_RUNS = 50_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A turn that a worker runs now."""

    tenant: str
    session_id: str
    job_id: str


def runs_by_token(leased: QuerySet[WorkItem]) -> dict[str, list[Run]]:
    """{token: runs} of these items, read in the partial index that refuses a session a second lease."""
    rows = leased.order_by().values_list("owner", "tenant", "session__session_id", "job_id")[:MAX_RUNS]
    runs: dict[str, list[Run]] = {}
    for token, tenant, session_id, job_id in rows:
        runs.setdefault(token or "", []).append(Run(tenant=tenant, session_id=session_id, job_id=job_id))
    for held in runs.values():
        held.sort(key=lambda run: (run.session_id, run.tenant))
    return runs


def stuck_runs(worker: DispatchWorker, tenants: str | Collection[str] | None) -> list[Run]:
    """Runs that were settled without, and hold their slot still."""
    return [
        Run(tenant=run["tenant"], session_id=run["session_id"], job_id=run["job_id"])
        for run in worker.active_sessions
        if run.get("stuck") and _is_of(run["tenant"], tenants)
    ]


def _is_of(name: str, tenants: str | Collection[str] | None) -> bool:
    return tenants is None or (name == tenants if isinstance(tenants, str) else name in tenants)
