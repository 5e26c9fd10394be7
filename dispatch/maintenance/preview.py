"""What a pass of retention would delete, counted and left alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from django.db.models import Count, F, Q

from dispatch.authority.removal import JOB_ROWS, Removed, table_of
from dispatch.maintenance.aged import AgedTable, aged_rows
from dispatch.maintenance.retention import Policy, jobs_left, old_jobs, old_sessions
from dispatch.models import WorkItem, WorkItemDependency
from sessions_app.models import Session

STORE = ""  # where a table has no tenant


class Preview:
    """Goes the way of a pass, and remembers what would be gone by then."""

    def __init__(self, *, policy: Policy, tables: Sequence[AgedTable]) -> None:
        self._policy = policy
        self._tables = tables
        self._counts: dict[str, Removed] = {}
        self._jobs: set[int] = set()
        self._sessions: set[int] = set()
        self._dependencies: set[int] = set()

    def count(self) -> dict[str, Removed]:
        """{tenant: {table: rows}}, the tenant "" for tables that have none."""
        for jobs in old_jobs(self._policy):
            self._count_jobs(list(jobs))
        for sessions in old_sessions(self._policy):
            for jobs in jobs_left(list(sessions)):
                self._count_jobs([pk for pk in jobs if pk not in self._jobs])
            self._count_sessions(set(sessions))
        for table in self._tables:
            self._count_table(table)
        return {tenant: self._counts[tenant] for tenant in sorted(self._counts)}

    def _add(self, tenant: str, table: str, rows: int) -> None:
        self._counts.setdefault(tenant, Counter())[table] += rows

    def _count_jobs(self, pks: list[int]) -> None:
        self._jobs.update(pks)
        tenants = dict(WorkItem.objects.filter(pk__in=pks).values_list("pk", "tenant"))
        for tenant, number in Counter(tenants.values()).items():
            self._add(tenant, table_of(WorkItem), number)
        for model, column in JOB_ROWS:
            if model is WorkItemDependency:
                continue
            rows = model._default_manager.filter(**{f"{column}__in": pks}).order_by().values_list(column)
            for pk, number in rows.annotate(n=Count("pk")):
                self._add(tenants[pk], table_of(model), number)
        self._count_dependencies(pks)
        own = WorkItem.objects.filter(
            pk__in=pks, job_id=F("session__session_id"), session_seq=F("session__last_seq")
        ).values_list("session_id", flat=True)
        self._count_sessions(set(own))

    def _count_dependencies(self, pks: list[int]) -> None:
        """A row goes with the first of its two jobs."""
        rows = WorkItemDependency.objects.filter(Q(work_item__in=pks) | Q(parent__in=pks))
        for pk, tenant in rows.values_list("pk", "work_item__tenant"):
            if pk not in self._dependencies:
                self._dependencies.add(pk)
                self._add(tenant, table_of(WorkItemDependency), 1)

    def _count_sessions(self, pks: set[int]) -> None:
        """Those of which no job is left."""
        jobs = WorkItem.objects.filter(session_id__in=pks).values_list("session_id", "pk")
        kept = {session for session, pk in jobs if pk not in self._jobs}
        gone = pks - kept - self._sessions
        self._sessions |= gone
        for tenant in Session.objects.filter(pk__in=gone).values_list("tenant", flat=True):
            self._add(tenant, table_of(Session), 1)

    def _count_table(self, table: AgedTable) -> None:
        for keys in aged_rows(table):
            if not table.per_tenant:
                self._add(STORE, table_of(table.model), len(keys))
                continue
            for tenant in table.rows().filter(pk__in=keys).values_list("tenant", flat=True):
                self._add(tenant, table_of(table.model), 1)
