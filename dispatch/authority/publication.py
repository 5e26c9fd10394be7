"""Envelopes follow the rows: sent right after the commit that makes a turn claimable, again when a crash came between.

A new dispatch waits for the broker's word. What it did not take is withdrawn, so that a refusal leaves no row.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from django.db import DatabaseError, connection, transaction

from dispatch import states
from dispatch.authority.posting import mark_sent
from dispatch.authority.store import Store, lock_sessions, retry_deadlock
from dispatch.authority.submit import NewItem, Submitted
from dispatch.envelope import AgentTurnEnvelope
from dispatch.errors import DispatchError, QueueUnavailable
from dispatch.models import CoalescedRequest, WebhookWatch, WorkItem, WorkItemDependency, WorkItemEvent
from dispatch.ports import Envelopes, QueueRow
from dispatch.states import QueueState
from sessions_app.models import Goal, Session

REPUBLISHED_AT_ONCE = 2_000
NOT_SENT = "the broker did not take the turn; nothing was admitted"
# a session that was made by the dispatch which is withdrawn goes with it
MADE_WITH_IT = timedelta(milliseconds=2)

log = logging.getLogger("dispatch.authority")


class Publication:
    """What is sent, and what the rows say of it."""

    def __init__(self, store: Store, envelopes: Envelopes, *, tick_s: float, resend_s: float) -> None:
        self._store = store
        self._envelopes = envelopes
        self._tick_s = tick_s
        self._resend_s = resend_s

    def refuse_when_blind(self) -> None:
        self._envelopes.refuse_when_blind()

    # -- new dispatches ------------------------------------------------------------------------------------------------
    def send_new(self, items: Sequence[NewItem], answers: list[Submitted]) -> list[Submitted]:
        """Send what was admitted; raises QueueUnavailable for a single item that was not sent and is withdrawn.

        One that was claimed meanwhile, or behind which another turn has queued, stays: the tick sends it.
        """
        fresh = {
            answer.job_id: (item, answer)
            for item, answer in zip(items, answers, strict=True)
            if answer.error is None and not answer.existing and not answer.coalesced
        }
        if connection.in_atomic_block:
            # the caller's commit is still to come, and cannot be undone by what follows it
            transaction.on_commit(lambda: self.announce({answer.item_id for _, answer in fresh.values()}))
            return answers
        now = time.time()
        failed = self._envelopes.send([_of_new(item, now) for item, _ in fresh.values()])
        mark_sent(self._envelopes, [answer.item_id for _, answer in fresh.values() if answer.job_id not in failed])
        gone = {job_id for job_id in failed if retry_deadlock(lambda pk=fresh[job_id][1].item_id: self._withdraw(pk))}  # type: ignore[misc]
        if gone and len(items) == 1:
            raise QueueUnavailable(NOT_SENT)
        refused = QueueUnavailable(NOT_SENT)
        return [replace(answer, error=refused) if answer.job_id in gone else answer for answer in answers]

    def _withdraw(self, item_id: int) -> bool:
        """Delete an item that nobody has claimed and nothing has queued behind, with all that its admission wrote."""
        with self._store.transaction():
            found = WorkItem.objects.filter(pk=item_id).values_list("session_id", flat=True).first()
            if found is None:
                return True
            session = lock_sessions([found])[found]
            self._store.transport.rows([item_id])
            item = WorkItem.objects.get(pk=item_id)
            untouched = item.epoch == 0 and item.status in states.QUEUED and session.last_seq == item.session_seq
            if not untouched or WorkItemDependency.objects.filter(parent=item).exists():
                return False
            if CoalescedRequest.objects.filter(work_item=item).exists():
                return False  # another caller has its handle
            WorkItemEvent.objects.filter(work_item=item).delete()
            WebhookWatch.objects.filter(work_item=item).delete()
            Goal.objects.filter(work_item_id=item_id).delete()
            self._store.transport.ack([item_id])
            WorkItem.objects.filter(pk=item_id, epoch=0).delete()
            self._leave(session, item)
        return True

    @staticmethod
    def _leave(session: Session, item: WorkItem) -> None:
        """Give its place back; the session too, if it came with the item."""
        others = WorkItem.objects.filter(session=session)
        made_for_it = item.created_at - session.created_at <= MADE_WITH_IT and not session.state
        if made_for_it and not others.exists():
            session.delete()
            return
        session.last_seq -= 1
        if session.head_seq == item.session_seq:
            session.head_seq = None
            session.status = states.session_after("idle", desired=session.desired, head_status=None, asks=False)
        session.save(update_fields=["last_seq", "head_seq", "status"])

    # -- what became claimable -----------------------------------------------------------------------------------------
    def announce(self, item_ids: set[int]) -> None:
        """Send those that are claimable and were not sent. What the broker does not take is left to the tick."""
        try:
            rows = self._store.transport.rows(sorted(item_ids)).values()
            self._send([row for row in rows if row.state == QueueState.CLAIMABLE and row.published_at is None])
        except (DispatchError, DatabaseError) as error:
            log.warning("turns not announced", extra={"count": len(item_ids), "error": type(error).__name__})

    def republish(self) -> int:
        """Send what a crash or an absent broker left unsent, and again what nobody has claimed for long.

        Duplicates are harmless: a claim is by job id, and fenced.
        """
        now = time.time()
        rows = self._envelopes.unpublished(before=now - self._resend_s, limit=REPUBLISHED_AT_ONCE)
        forgotten = [row for row in rows if row.published_at or _waits_s(row, now) > self._tick_s / 2]
        return self._send(forgotten, again=True)

    def overdue(self, *, limit: int | None) -> set[int]:
        """Claimable turns that have had no envelope for more than two ticks; among the first `limit`."""
        now = time.time()
        rows = self._envelopes.unpublished(before=0.0, limit=REPUBLISHED_AT_ONCE if limit is None else limit)
        return {row.item_id for row in rows if _waits_s(row, now) > 2 * self._tick_s}

    def _send(self, rows: Iterable[QueueRow], *, again: bool = False) -> int:
        by_job = {row.job_id: row for row in rows}
        if not by_job:
            return 0
        failed = self._envelopes.send(_of_stored([row.item_id for row in by_job.values()]), again=again)
        sent = [row.item_id for job_id, row in by_job.items() if job_id not in failed]
        mark_sent(self._envelopes, sent)
        if failed:
            log.warning("turns not announced", extra={"count": len(failed)})
        return len(sent)


def _waits_s(row: QueueRow, now: float) -> float:
    """How long the row has been claimable: its rank is that moment, put back by its priority."""
    return now - (row.rank - row.priority * states.AGING_STEP_S)


def envelope_of(
    *,
    job_id: str,
    session_id: str,
    kind: str,
    agent_name: str,
    tenant: str,
    priority: int,
    deadline: datetime | None,
    at: float,
    attempt: int = 0,
) -> AgentTurnEnvelope:
    """`at`: when it was dispatched, in unix time."""
    return AgentTurnEnvelope(
        job_id=job_id,
        session_id=session_id,
        kind=kind,  # type: ignore[arg-type]
        payload_ref=job_id,
        agent_name=agent_name,
        tenant=tenant,
        priority=states.PRIORITIES[priority],  # type: ignore[arg-type]
        deadline_unix=deadline.timestamp() if deadline else None,
        attempt=attempt,
        enqueued_at=at,
    )


def _of_new(item: NewItem, now: float) -> AgentTurnEnvelope:
    return envelope_of(
        job_id=item.job_id,
        session_id=item.session_id,
        kind=item.kind,
        agent_name=item.agent_name,
        tenant=item.tenant,
        priority=item.priority,
        deadline=item.deadline,
        at=now,
    )


def _of_stored(item_ids: Sequence[int]) -> list[AgentTurnEnvelope]:
    """In the order of the ids, which is that of admission."""
    fields = ("job_id", "session__session_id", "kind", "agent_name", "tenant", "priority", "deadline", "attempt")
    rows = WorkItem.objects.filter(pk__in=item_ids).order_by("pk").values_list(*fields, "created_at")
    return [
        envelope_of(
            job_id=job_id,
            session_id=session_id,
            kind=kind,
            agent_name=agent,
            tenant=tenant,
            priority=priority,
            deadline=deadline,
            attempt=attempt,
            at=created.timestamp(),
        )
        for job_id, session_id, kind, agent, tenant, priority, deadline, attempt, created in rows
    ]
