"""Deletes what has ended, for good: jobs with all that hangs on them, and sessions of which nothing is left.

Who calls says what is old. What others wait on stays, whatever the caller says: each batch locks its rows, skips those
that somebody else holds, and looks at them again under the locks, so that neither a reopened job nor the parent of a
job that is being dispatched ever goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from django.db.models import Exists, F, Model, OuterRef, Q, QuerySet

from dispatch import states
from dispatch.authority.statements import Statements
from dispatch.authority.store import Store
from dispatch.models import (
    CoalescedRequest,
    ModelUsage,
    Outcome,
    OutputChunk,
    Question,
    StepResult,
    WebhookDelivery,
    WebhookWatch,
    WorkItem,
    WorkItemDependency,
    WorkItemEvent,
)
from sessions_app import states as session_states
from sessions_app.models import Goal, GoalIteration, Session, Turn

SQL = Statements("removal.sql")
Removed = Counter[str]  # {table: rows}


def table_of(model: type[Model]) -> str:
    return model._meta.db_table


# What hangs on a job, and the column that says on which; a job that waited is named in `work_item_id` as well.
JOB_ROWS: tuple[tuple[type[Model], str], ...] = (
    (WorkItemEvent, "work_item_id"),
    (Outcome, "work_item_id"),
    (StepResult, "work_item_id"),
    (OutputChunk, "work_item_id"),
    (ModelUsage, "work_item_id"),
    (Question, "work_item_id"),
    (WebhookDelivery, "work_item_id"),
    (WebhookWatch, "work_item_id"),
    (Turn, "work_item_id"),
    (GoalIteration, "work_item_id"),
    (Goal, "work_item_id"),
    (WorkItemDependency, "work_item_id"),
    (WorkItemDependency, "parent_id"),
    (CoalescedRequest, "work_item_id"),
)


def idle_sessions() -> QuerySet[Session]:
    """Nothing of them is unfinished, and nobody has a wish that would be forgotten with them."""
    return Session.objects.filter(head_seq__isnull=True, desired=session_states.RUN, kill_through_seq__isnull=True)


def ended_alone() -> QuerySet[WorkItem]:
    """Ended jobs that nobody waits on.

    Waiting on a job are: what depends on it or is suspended for it; a parent that has not ended, which reads its
    children and would dispatch them again; its own children that have not ended. A parent that did not succeed stays
    as long as its dependents do: it is why they may not be retried.
    """
    waiting = WorkItemDependency.objects.filter(parent=OuterRef("pk")).filter(
        ~Q(parent__status=states.SUCCEEDED) | Q(work_item__finished_at__isnull=True)
    )
    children = WorkItem.objects.filter(parent_item_id=OuterRef("pk"), finished_at__isnull=True)
    parent = WorkItem.objects.filter(pk=OuterRef("parent_item_id"), finished_at__isnull=True)
    return WorkItem.objects.filter(
        ~Exists(waiting),
        ~Exists(children),
        ~Exists(parent),
        finished_at__isnull=False,
    )


# The job was dispatched without a session: it is the only turn that its session ever had.
ONLY_TURN = Q(
    job_id=F("session__session_id"),
    session_seq=F("session__last_seq"),
    session__head_seq__isnull=True,
    session__desired=session_states.RUN,
    session__kill_through_seq__isnull=True,
)


def removable_jobs(*, keep_turns: int) -> QuerySet[WorkItem]:
    """Ended jobs that nobody waits on and that are not among the newest `keep_turns` of their session."""
    if keep_turns == 0:
        return ended_alone()
    newer = WorkItem.objects.filter(session=OuterRef("session"), session_seq__gt=OuterRef("session_seq"))
    return ended_alone().filter(ONLY_TURN | Exists(newer[keep_turns - 1 : keep_turns]))


class Removal:
    """Deletes in transactions of its own. `allowed` is asked inside each: false, and nothing is deleted."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def jobs(self, seen: Mapping[int, int], *, keep_turns: int, allowed: Callable[[], bool]) -> Removed:
        """Delete these jobs: {item id: its epoch when the caller judged it}. One that was reopened since has another.

        The session of a job that was dispatched without one goes with it.
        """
        with self._store.transaction() as unit:
            if not allowed():
                return Counter()
            own = Session.objects.filter(
                pk__in=WorkItem.objects.filter(pk__in=list(seen), job_id=F("session__session_id")).values("session_id")
            )
            locked = list(own.order_by("tenant", "session_id").select_for_update(skip_locked=True))
            jobs = WorkItem.objects.filter(pk__in=list(seen)).order_by("pk").select_for_update(skip_locked=True)
            held = [pk for pk, epoch in jobs.values_list("pk", "epoch") if epoch == seen[pk]]
            # a statement of its own: it sees what was committed before the locks were held
            free = list(removable_jobs(keep_turns=keep_turns).filter(pk__in=held).values_list("pk", flat=True))
            removed = _remove_jobs(free)
            removed += _remove_sessions(_empty([session.pk for session in locked]))
            count_removed(removed)
            unit.touched.update(free)  # a queue row that outlived its job goes with it
            return removed

    def sessions(self, seen: Mapping[int, datetime], *, allowed: Callable[[], bool]) -> Removed:
        """Delete these sessions of which no job is left: {session key: when it had last changed}."""
        with self._store.transaction():
            if not allowed():
                return Counter()
            rows = idle_sessions().filter(pk__in=list(seen)).order_by("tenant", "session_id")
            held = rows.select_for_update(skip_locked=True).values_list("pk", "updated_at")
            removed = _remove_sessions(_empty([pk for pk, changed in held if changed == seen[pk]]))
            count_removed(removed)
            return removed


def _remove_jobs(pks: list[int]) -> Removed:
    removed: Removed = Counter()
    if pks:
        for model, column in JOB_ROWS:
            removed[table_of(model)] += _delete(model, column, pks)
        removed[table_of(WorkItem)] += _delete(WorkItem, "id", pks)
    return +removed


def _remove_sessions(pks: list[int]) -> Removed:
    removed: Removed = Counter()
    if pks:
        removed[table_of(Turn)] += _delete(Turn, "session_id", pks)
        removed[table_of(Session)] += _delete(Session, "id", pks)
    return +removed


def _empty(session_pks: Iterable[int]) -> list[int]:
    left = WorkItem.objects.filter(session=OuterRef("pk"))
    rows = idle_sessions().filter(~Exists(left), pk__in=list(session_pks))
    return list(rows.values_list("pk", flat=True))


def _delete(model: type[Model], column: str, pks: list[int]) -> int:
    """One statement: Django's own cascade would read every row first, and what hangs on these is deleted by name."""
    rows = model._default_manager.filter(**{f"{column}__in": pks})
    deleted: int = rows._raw_delete(rows.db)
    return deleted


def count_removed(removed: Removed) -> None:
    """Add to the totals, in the caller's transaction."""
    if removed:
        SQL.batch("count", sorted(removed.items()))
