"""The queue is a projection of the state: what a queue row must say follows from the item and its session alone."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Exists, F, OuterRef, Q

from dispatch import states
from dispatch.authority.statements import Statements
from dispatch.clock import store_now
from dispatch.models import WorkItem
from dispatch.ports import QueueRow, Transport

SQL = Statements("strays.sql")
PAGE = 500
ALL = 2**62
_FIELDS = (
    "pk",
    "job_id",
    "tenant",
    "kind",
    "agent_name",
    "priority",
    "status",
    "session_seq",
    "due_at",
    "deadline",
    "created_at",
    "session__head_seq",
    "session__desired",
)


def _says_wrong(row: QueueRow, wanted: QueueRow) -> bool:
    """A time that has come is no fault: the due tick's next run moves the row."""
    moves = (row.state, wanted.state) == (states.QueueState.DUE_LATER, states.QueueState.CLAIMABLE)
    return row.state != wanted.state and not (moves and row.due_at is not None and row.due_at == wanted.due_at)


def rank_of(since: float, priority: int) -> float:
    """Claimable since, plus five minutes for each step of priority below critical: it ages by itself."""
    return since + priority * states.AGING_STEP_S


def _unix(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None


def _rows(item_ids: Iterable[int], now: float, present: dict[int, QueueRow]) -> Iterable[tuple[int, QueueRow | None]]:
    for values in WorkItem.objects.filter(pk__in=list(item_ids)).values_list(*_FIELDS):
        pk, job_id, tenant, kind, agent, priority, status, seq, due_at, deadline, created, head, desired = values
        if status in states.TERMINAL:
            yield pk, None
            continue
        due = _unix(due_at)
        state = states.queue_state(
            status=status, is_head=seq == head, desired=desired, due_later=due is not None and due > now
        )
        old = present.get(pk)
        keeps_place = old is not None and (state == old.state or state == states.QueueState.CLAIMED)
        yield (
            pk,
            QueueRow(
                item_id=pk,
                job_id=job_id,
                tenant=tenant,
                kind=kind,
                agent_name=agent,
                state=state,
                rank=old.rank if old and keeps_place else rank_of(now, priority),
                priority=priority,
                due_at=due,
                deadline=_unix(deadline),
                enqueued_at=old.enqueued_at if old else created.timestamp(),
                # what cannot be claimed forgets that it was sent: it is sent again when it can be
                published_at=old.published_at if old and state == old.state == states.QueueState.CLAIMABLE else None,
            ),
        )


def project(transport: Transport, item_ids: set[int]) -> set[int]:
    """Make the queue rows of these items say what the state says; answers which of them became claimable."""
    now = store_now().timestamp()
    present = transport.rows(sorted(item_ids))
    wanted = dict(_rows(item_ids, now, present))
    gone = [pk for pk in item_ids if wanted.get(pk) is None]
    changed = [row for pk, row in wanted.items() if row is not None and row != present.get(pk)]
    if changed:
        transport.publish(changed)
    if gone:
        transport.ack(gone)
    return {row.item_id for row in changed if row.state == states.QueueState.CLAIMABLE}


def _unfinished(after: int, limit: int) -> list[int]:
    rows = WorkItem.objects.filter(finished_at__isnull=True, pk__gt=after).order_by("pk")
    return list(rows.values_list("pk", flat=True)[:limit])


def rebuild(transport: Transport) -> int:
    """Fill a fresh queue from the state store; answers how many rows it made."""
    made, after = 0, 0
    while ids := _unfinished(after, PAGE):
        project(transport, set(ids))
        made, after = made + len(ids), ids[-1]
    transport.rebuilt()
    return made


@dataclass(frozen=True, kw_only=True, slots=True)
class Strays:
    """Items whose queue row is missing or says another thing than the state, and rows whose item has ended."""

    without_row: frozenset[int]
    wrong_row: frozenset[int]
    left_over: frozenset[int]

    @property
    def all(self) -> frozenset[int]:
        return self.without_row | self.wrong_row | self.left_over

    def labelled(self) -> dict[str, frozenset[int]]:
        """By the labels that evidence and checks show."""
        return {
            "items_without_envelope": self.without_row,
            "envelopes_astray": self.wrong_row,
            "envelopes_without_item": self.left_over,
        }


def _behind_no_head(ids: list[int]) -> set[int]:
    """Items whose session has another head than its first unfinished turn: nothing would ever promote them."""
    head = WorkItem.objects.filter(
        session=OuterRef("session"), session_seq=OuterRef("session__head_seq"), finished_at__isnull=True
    )
    astray = WorkItem.objects.filter(pk__in=ids).filter(~Exists(head) | Q(session_seq__lt=F("session__head_seq")))
    return set(astray.values_list("pk", flat=True))


def strays(transport: Transport, *, limit: int | None = None, rest: float = 0.0) -> Strays:
    """One pass without locks: what it finds is a guess to be looked at again under them.

    A time that has come is no stray: the due tick's next run moves it. A queue of its own is compared here, in pages;
    after each it sleeps `rest` times as long as that took, for the process has other work to do.
    """
    if transport.capabilities.rows_in_store:
        return _strays_in_store(ALL if limit is None else limit)
    return _strays_in_pages(transport, limit, rest)


def _strays_in_store(limit: int) -> Strays:
    astray = SQL.run("astray", (store_now(), limit))
    left_over = SQL.run("left_over", (limit,))
    return Strays(
        without_row=frozenset(pk for pk, missing in astray if missing),
        wrong_row=frozenset(pk for pk, missing in astray if not missing),
        left_over=frozenset(pk for (pk,) in left_over),
    )


def _strays_in_pages(transport: Transport, limit: int | None, rest: float) -> Strays:
    without: set[int] = set()
    wrong: set[int] = set()
    left: set[int] = set()
    now = store_now().timestamp()
    after, seen = 0, 0
    began = time.monotonic()
    while (limit is None or seen < limit) and (ids := _unfinished(after, PAGE)):
        present = transport.rows(ids)
        for pk, row in _rows(ids, now, present):
            old = present.get(pk)
            if row is None:
                continue
            if old is None:
                without.add(pk)
            elif _says_wrong(old, row):
                wrong.add(pk)
        wrong |= _behind_no_head(ids)
        after, seen = ids[-1], seen + len(ids)
        began = _rested(began, rest)
    after, seen = 0, 0
    while (limit is None or seen < limit) and (rows := transport.page(after=after, limit=PAGE)):
        ids = [row.item_id for row in rows]
        live = set(WorkItem.objects.filter(pk__in=ids, finished_at__isnull=True).values_list("pk", flat=True))
        left.update(pk for pk in ids if pk not in live)
        after, seen = ids[-1], seen + len(ids)
        began = _rested(began, rest)
    return Strays(without_row=frozenset(without), wrong_row=frozenset(wrong), left_over=frozenset(left))


def _rested(began: float, rest: float) -> float:
    """Sleep in proportion to the time since `began`; answers the present."""
    if rest:
        time.sleep(rest * (time.monotonic() - began))
    return time.monotonic()


def still_astray(transport: Transport, ids: frozenset[int]) -> set[int]:
    """Which of these are astray while nobody moves them: inside the caller's transport transaction."""
    now = store_now().timestamp()
    present = transport.rows(sorted(ids))
    wanted = dict(_rows(ids, now, present))
    headless = _behind_no_head([pk for pk, row in wanted.items() if row is not None])
    astray = set(headless)
    for pk in ids:
        row, old = wanted.get(pk), present.get(pk)
        same = (row is None) == (old is None)
        if not same or (row and old and _says_wrong(old, row)):
            astray.add(pk)
    return astray
