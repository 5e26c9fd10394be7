"""Tables that only grow and on whose rows nobody waits: they go by age, and by count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import transaction
from django.db.models import Model, QuerySet

from dispatch.authority.removal import Removed, count_removed, table_of
from dispatch.clock import store_now
from dispatch.models import DeadEnvelope
from sessions_app.models import AuditEntry

WINDOW = 500  # rows in one transaction


@dataclass(frozen=True, kw_only=True, slots=True)
class AgedTable:
    """`at` is the column whose age decides; a row in which it is null stays. None: no limit of that sort.

    With `per_tenant` the count is each tenant's own, and the table has an index on (tenant, -id).
    """

    model: type[Model]
    at: str
    age: timedelta | None = None
    most: int | None = None
    per_tenant: bool = False

    def rows(self) -> QuerySet[Any]:
        return self.model._default_manager.all()


Make = Callable[[Any], AgedTable]  # from an AgentConfig


def days(number: float) -> timedelta | None:
    """A setting in days as an age; 0 stands for no limit."""
    return timedelta(days=number) if number else None


_made: list[Make] = [
    lambda config: AgedTable(
        model=AuditEntry,
        at="at",
        age=days(config.retention_audit_days),
        most=config.retention_audit_max or None,
        per_tenant=True,
    ),
    lambda config: AgedTable(
        model=DeadEnvelope,
        at="seen_at",
        age=days(config.retention_dead_envelopes_days),
        most=config.retention_dead_envelopes_max or None,
    ),
]


def register_aged(make: Make) -> None:
    """Let another app name a table of its own."""
    _made.append(make)


def aged_tables(config: Any) -> list[AgedTable]:
    return [make(config) for make in _made]


def aged_rows(table: AgedTable) -> Iterator[list[int]]:
    """Keys of rows past their age or over the count, a window at a time, oldest first."""
    if table.age is not None:
        yield from _windows(table.rows().filter(**{f"{table.at}__lt": store_now() - table.age}))
    if table.most is None:
        return
    for rows in _counted(table):
        for key in rows.order_by("-pk").values_list("pk", flat=True)[table.most : table.most + 1]:
            yield from _windows(rows.filter(pk__lte=key))


def remove_aged(table: AgedTable, keys: list[int], *, allowed: Callable[[], bool]) -> Removed:
    """Delete these rows in a transaction of its own, if it is allowed."""
    with transaction.atomic():
        if not allowed():
            return Counter()
        rows = table.rows().filter(pk__in=keys)
        removed: Removed = +Counter({table_of(table.model): rows._raw_delete(rows.db)})
        count_removed(removed)
        return removed


def tenants_of(rows: QuerySet[Any]) -> Iterator[str]:
    """One step in the tenant's index for each."""
    names = rows.order_by("tenant").values_list("tenant", flat=True)
    tenant = names.first()
    while tenant is not None:
        yield tenant
        tenant = names.filter(tenant__gt=tenant).first()


def _counted(table: AgedTable) -> Iterator[QuerySet[Any]]:
    """The rows among which the newest are kept."""
    if not table.per_tenant:
        yield table.rows()
        return
    for tenant in tenants_of(table.rows()):
        yield table.rows().filter(tenant=tenant)


def _windows(rows: QuerySet[Any]) -> Iterator[list[int]]:
    after = 0
    while keys := list(rows.filter(pk__gt=after).order_by("pk").values_list("pk", flat=True)[:WINDOW]):
        yield keys
        after = keys[-1]
