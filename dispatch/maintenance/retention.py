"""Retention: which jobs and sessions are old, or too many. Whether one may go is `dispatch.authority.removal`'s to say.

No index is kept for it, since an index on a time would cost every turn: rows are walked in order of their keys, which
is the order of admission, and the walk ends at the first that is too young to be wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, QuerySet

from dispatch.authority.removal import idle_sessions, removable_jobs
from dispatch.clock import store_now
from dispatch.maintenance.aged import days, tenants_of
from dispatch.models import WorkItem
from sessions_app.models import Session

WINDOW = 2_000  # rows looked at in one query


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """What is kept. None: for ever, or as many as there are; the counts are each tenant's."""

    jobs_age: timedelta | None
    jobs_max: int | None
    sessions_age: timedelta | None
    sessions_max: int | None
    session_turns: int

    @classmethod
    def of(cls, config: Any) -> Policy:
        """From an AgentConfig, in which 0 stands for no limit."""
        return cls(
            jobs_age=days(config.retention_jobs_days),
            jobs_max=config.retention_jobs_max or None,
            sessions_age=days(config.retention_sessions_days),
            sessions_max=config.retention_sessions_max or None,
            session_turns=config.retention_session_turns,
        )


def old_jobs(policy: Policy) -> Iterator[dict[int, int]]:
    """{item id: epoch} of removable jobs past their age or beyond their tenant's count, a window of keys at a time."""
    before = _before(policy.jobs_age)
    beyond = _beyond_count(policy.jobs_max)
    jobs = removable_jobs(keep_turns=policy.session_turns)
    for first, last in _windows(WorkItem.objects.all(), before=before, last=max(beyond.values(), default=0)):
        found = jobs.filter(pk__gte=first, pk__lte=last).values_list("pk", "epoch", "tenant", "finished_at")
        yield {
            pk: epoch
            for pk, epoch, tenant, finished in found
            if (before is not None and finished is not None and finished < before) or pk <= beyond.get(tenant, 0)
        }


def old_sessions(policy: Policy) -> Iterator[dict[int, datetime]]:
    """{session key: last change} of idle sessions past their age, or used longer ago than their tenant's newest."""
    before = _before(policy.sessions_age)
    unused = _unused_since(policy.sessions_max)
    newest = Session.objects.order_by("-pk").values_list("pk", flat=True).first() if unused else None
    for first, last in _windows(Session.objects.all(), before=before, last=newest or 0):
        found = idle_sessions().filter(pk__gte=first, pk__lte=last).values_list("pk", "tenant", "updated_at")
        yield {
            pk: changed
            for pk, tenant, changed in found
            if (before is not None and changed < before) or (tenant in unused and changed <= unused[tenant])
        }


def jobs_left(session_pks: list[int]) -> Iterator[dict[int, int]]:
    """{item id: epoch} of the removable jobs of these sessions, a window at a time: with a session all its turns go."""
    jobs = removable_jobs(keep_turns=0).filter(session_id__in=session_pks).order_by("pk").values_list("pk", "epoch")
    after = 0
    while found := dict(jobs.filter(pk__gt=after)[:WINDOW]):
        yield found
        after = max(found)


def _before(age: timedelta | None) -> datetime | None:
    return None if age is None else store_now() - age


def _windows(rows: QuerySet[Any], *, before: datetime | None, last: int) -> Iterator[tuple[int, int]]:
    """(first, last) key of each window, up to `last` and as long as something in it was made before that moment."""
    after = 0
    while True:
        found = list(rows.filter(pk__gt=after).order_by("pk").values_list("pk", "created_at")[:WINDOW])
        wanted = [pk for pk, made in found if pk <= last or (before is not None and made < before)]
        if not wanted:
            return
        yield wanted[0], wanted[-1]
        after = found[-1][0]


def _beyond_count(most: int | None) -> dict[str, int]:
    """{tenant: the newest key over the count}, of the tenants that have more jobs than that."""
    beyond: dict[str, int] = {}
    if most is not None:
        for tenant in tenants_of(WorkItem.objects.all()):
            keys = WorkItem.objects.filter(tenant=tenant).order_by("-pk").values_list("pk", flat=True)
            beyond.update((tenant, pk) for pk in keys[most : most + 1])
    return beyond


def _unused_since(most: int | None) -> dict[str, datetime]:
    """{tenant: last change of the most recently used session over the count}."""
    unused: dict[str, datetime] = {}
    if most is not None:
        over = Session.objects.values("tenant").annotate(n=Count("pk")).filter(n__gt=most).order_by("tenant")
        for tenant in over.values_list("tenant", flat=True):
            changes = Session.objects.filter(tenant=tenant).order_by("-updated_at").values_list("updated_at", flat=True)
            unused.update((tenant, changed) for changed in changes[most : most + 1])
    return unused
