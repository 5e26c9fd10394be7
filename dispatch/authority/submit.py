"""Admission: a dispatch takes its place in its session and becomes a WorkItem with a queue row, or leaves nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.models import QuerySet

from dispatch import states
from dispatch.authority.goals import add_goal, redefine
from dispatch.authority.projection import rank_of
from dispatch.authority.statements import Statements, to_db, to_json
from dispatch.authority.store import Store, Unit, lock_sessions
from dispatch.bound import admitted, refused_by_bound
from dispatch.clock import store_now
from dispatch.errors import Invalid, QueueFull, SessionBusy
from dispatch.models import CoalescedRequest, WebhookWatch, WorkItem, WorkItemDependency
from dispatch.ports import Callback, QueueRow
from sessions_app.models import Session

SQL = Statements("submit.sql")


@dataclass(frozen=True, kw_only=True, slots=True)
class NewItem:
    """A validated dispatch with its ids, agent and budget resolved."""

    job_id: str
    tenant: str
    session_id: str
    kind: str
    agent_name: str
    priority: int
    max_attempts: int
    on_worker_lost: str
    task: str
    run_at: datetime | None = None
    deadline: datetime | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    goal: Mapping[str, Any] | None = None
    fingerprint: Mapping[str, str] | None = None
    dependencies: Sequence[str] = ()
    on_busy: str = "enqueue"
    parent_item_id: int | None = None
    traceparent: str | None = None
    callback: Callback | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """What became of one NewItem. `existing`: the job was there before (a repeated key), or was coalesced into."""

    job_id: str
    session_id: str
    item_id: int = 0
    existing: bool = False
    coalesced: bool = False
    fingerprint: Mapping[str, str] | None = None
    error: Exception | None = None
    interrupts: int | None = None  # the running turn that the caller has yet to stop


class Submission:
    """Admits items under the bound; each of a list has its own answer.

    `stop_later`: what is admitted may still be withdrawn, so the turn that it interrupts is named in the answer and
    goes on; else, and inside a caller's own transaction, it is told to stop in the commit of the admission.
    """

    def __init__(self, store: Store, *, max_depth: int, interrupt: Any, stop_later: bool = False) -> None:
        self._store = store
        self._max_depth = max_depth
        self._interrupt = interrupt
        self._stop_later = stop_later

    def submit(self, items: Sequence[NewItem]) -> list[Submitted]:
        """Admit in order of the list, as far as the bound allows; places in a session follow it.

        Raises QueueFull, SessionBusy or Invalid when the list is a single item, else they are in its answer.
        """

        def once() -> list[Submitted]:
            try:
                return self._try(items)
            except IntegrityError as error:
                if refused_by_bound(error) or connection.in_atomic_block:
                    raise
                # another process inserted the same job id between our look and our insert: it is there now
                return self._try(items)

        return admitted(once, make_room=lambda: self._store.transport.make_room(len(items), self._max_depth))

    def _try(self, items: Sequence[NewItem]) -> list[Submitted]:
        stop_later = self._stop_later and not connection.in_atomic_block
        with self._store.transaction() as unit:
            now = store_now()
            # inside a caller's transaction the bound is read, not held
            room = self._store.transport.room(self._max_depth)
            known = self._existing(items)
            answers: dict[int, Submitted] = {}
            rows: list[QueueRow] = []
            if len(items) > 1:
                self._lock_existing(items)
            for place, item in enumerate(items):
                if (old := known.get(item.job_id)) is not None:
                    answers[place] = old
                    continue
                try:
                    full = len(rows) >= room
                    if item.on_busy not in ("enqueue", "interrupt"):
                        merged = self._busy(item, unit)
                        if merged is not None:
                            answers[place] = merged
                            known[item.job_id] = replace(
                                merged, existing=True, coalesced=False, fingerprint=item.fingerprint
                            )
                            continue
                    if full:
                        raise QueueFull
                    # what is refused after it has taken its place gives it back, and stops nobody
                    with transaction.atomic() if item.dependencies else nullcontext():
                        running = self._running(item) if item.on_busy == "interrupt" else None
                        if running is not None and not stop_later:
                            self._interrupt(running)
                        answers[place], row = self._admit(item, now, unit)
                        if stop_later:
                            answers[place] = replace(answers[place], interrupts=running)
                except (QueueFull, SessionBusy, Invalid) as error:
                    if len(items) == 1:
                        raise
                    answers[place] = Submitted(job_id=item.job_id, session_id=item.session_id, error=error)
                    continue
                known[item.job_id] = Submitted(
                    job_id=item.job_id, session_id=item.session_id, existing=True, fingerprint=item.fingerprint
                )
                rows.append(row)
            if unit.deferred:
                unit.touched.update(row.item_id for row in rows)
            elif rows:
                self._store.transport.publish(rows, bound=self._max_depth)
                unit.wake |= any(row.state == states.QueueState.CLAIMABLE for row in rows)
        return [answers[i] for i in range(len(items))]

    @staticmethod
    def _lock_existing(items: Sequence[NewItem]) -> None:
        """The sessions that are there, in the common order; two lists that make the same new ones break and retry."""
        ids = {item.session_id for item in items}
        tenants = {item.tenant for item in items}
        there = Session.objects.filter(tenant__in=tenants, session_id__in=ids).values_list("pk", flat=True)
        if connection.vendor == "postgresql":
            lock_sessions(there)

    @staticmethod
    def _existing(items: Sequence[NewItem]) -> dict[str, Submitted]:
        keyed = [item.job_id for item in items if item.fingerprint is not None or item.parent_item_id is not None]
        if not keyed:
            return {}
        own = WorkItem.objects.filter(job_id__in=keyed).values_list(
            "job_id", "job_id", "pk", "fingerprint", "session__session_id"
        )
        return {
            asked: Submitted(job_id=job_id, session_id=session, item_id=pk, existing=True, fingerprint=fingerprint)
            for asked, job_id, pk, fingerprint, session in own.union(_coalesced(keyed), all=True)
        }

    def _busy(self, item: NewItem, unit: Unit) -> Submitted | None:
        """Decide `on_busy` under the session's lock. None: take the next place."""
        session = _locked_session(item)
        if session is None:
            return None
        if item.on_busy == "coalesce" and (repeated := self._existing([item])):
            return repeated[item.job_id]  # it went in while we waited for the lock
        if session.head_seq is None:
            return None
        if item.on_busy == "reject":
            raise SessionBusy(f"session {item.session_id} has unfinished turns", session_id=item.session_id)
        unstarted = WorkItem.objects.filter(session=session, status__in=sorted(states.QUEUED), epoch=0)
        newest = unstarted.filter(agent_name=item.agent_name, kind=item.kind).order_by("-session_seq").first()
        if newest is None:
            return None
        if not replace_unstarted(newest.pk, task=item.task, payload=item.payload, goal=item.goal):
            return None  # it was claimed meanwhile (Postgres): take the next place
        CoalescedRequest.objects.create(job_id=item.job_id, work_item=newest, fingerprint=item.fingerprint)
        _watch(newest.pk, item.callback)
        return Submitted(job_id=newest.job_id, session_id=item.session_id, item_id=newest.pk, coalesced=True)

    @staticmethod
    def _running(item: NewItem) -> int | None:
        """The turn of its session that runs now, under the session's lock."""
        session = _locked_session(item)
        if session is None:
            return None
        live = WorkItem.objects.filter(session=session, status__in=sorted(states.LIVE))
        return live.values_list("pk", flat=True).first()

    def _admit(self, item: NewItem, now: datetime, unit: Unit) -> tuple[Submitted, QueueRow]:
        stamp = to_db(now)
        parents = self._parents(item)
        background = bool(item.metadata.get("background", False))
        ((session_pk, seq, head_seq, desired),) = SQL.run(
            "take_place",
            (item.tenant, item.session_id, to_json(session_metadata(item.metadata)), background, stamp, stamp, 1),
        )
        waiting = self._unmet(parents, item)
        status = states.SUBMITTED if waiting else states.READY
        due_at = to_db(item.run_at)
        ((item_id,),) = SQL.run(
            "add_item",
            (
                item.job_id,
                item.tenant,
                session_pk,
                seq,
                item.kind,
                item.agent_name,
                item.priority,
                status,
                item.max_attempts,
                item.on_worker_lost,
                due_at,
                due_at,
                to_db(item.deadline),
                item.task,
                to_json(item.payload),
                to_json(item.metadata),
                None if item.goal is None else to_json(item.goal),
                None if item.fingerprint is None else to_json(item.fingerprint),
                item.parent_item_id,
                stamp,
                item.traceparent,
            ),
        )
        SQL.run("add_event", (item_id, stamp, status))
        _watch(item_id, item.callback)
        if parents:
            WorkItemDependency.objects.bulk_create(
                [WorkItemDependency(work_item_id=item_id, parent_id=pk) for pk, _ in parents]
            )
            # a parent that has ended badly cancels this one right after the commit
            unit.ended.update(pk for pk, parent_status in parents if parent_status in states.TERMINAL)
        if item.goal is not None:
            add_goal(
                item.goal,
                tenant=item.tenant,
                session_pk=session_pk,
                item_id=item_id,
                job_id=item.job_id,
                now=now,
            )
        state = states.queue_state(
            status=status,
            is_head=seq == head_seq,
            desired=desired,
            due_later=item.run_at is not None and item.run_at > now,
        )
        row = QueueRow(
            item_id=item_id,
            job_id=item.job_id,
            tenant=item.tenant,
            kind=item.kind,
            agent_name=item.agent_name,
            state=state,
            rank=rank_of(now.timestamp(), item.priority),
            priority=item.priority,
            due_at=item.run_at.timestamp() if item.run_at else None,
            deadline=item.deadline.timestamp() if item.deadline else None,
            enqueued_at=now.timestamp(),
        )
        return Submitted(job_id=item.job_id, session_id=item.session_id, item_id=item_id), row

    @staticmethod
    def _parents(item: NewItem) -> list[tuple[int, str]]:
        """(id, job id) of the parents; Invalid names the unknown ones, another tenant's among them."""
        if not item.dependencies:
            return []
        found = dict(
            WorkItem.objects.filter(tenant=item.tenant, job_id__in=list(item.dependencies)).values_list("job_id", "pk")
        )
        if missing := [job for job in item.dependencies if job not in found]:
            raise Invalid("a dependency is unknown", fields={"dependencies": f"no such job: {missing[0]}"})
        return [(pk, "") for pk in sorted(found.values())]

    @staticmethod
    def _unmet(parents: list[tuple[int, str]], item: NewItem) -> bool:
        """Lock the parents, then read their status: none ends or goes unseen between this look and our commit."""
        if not parents:
            return False
        locked = list(
            WorkItem.objects.select_for_update()
            .filter(pk__in=[pk for pk, _ in parents])
            .order_by("pk")
            .values_list("pk", "status")
        )
        if len(locked) < len(parents):  # retention took one between our look and our lock
            raise Invalid("a dependency is unknown", fields={"dependencies": "one of these jobs is no more"})
        parents[:] = locked
        return any(status != states.SUCCEEDED for _, status in locked)


def still_running(item_id: int) -> int | None:
    """The turn that ran when this unstarted one was admitted, and still does, untold.

    Whoever admitted an interruption with `stop_later` and died before it told the turn leaves this; a repeat finds it.
    """
    newer = WorkItem.objects.filter(pk=item_id, status__in=sorted(states.QUEUED), epoch=0).first()
    if newer is None:
        return None
    live = WorkItem.objects.filter(
        session_id=newer.session_id,
        status__in=sorted(states.LIVE),
        session_seq__lt=newer.session_seq,
        started_at__lte=newer.created_at,
        cancel_requested_at__isnull=True,
    )
    return live.values_list("pk", flat=True).first()


def _locked_session(item: NewItem) -> Session | None:
    pk = Session.objects.filter(tenant=item.tenant, session_id=item.session_id).values_list("pk", flat=True).first()
    return None if pk is None else lock_sessions([pk]).get(pk)


def _coalesced(job_ids: Sequence[str]) -> QuerySet[CoalescedRequest, tuple[Any, ...]]:
    """(the job id that it would have got, and the job id, key, fingerprint and session of what answers it)."""
    return CoalescedRequest.objects.filter(job_id__in=job_ids).values_list(
        "job_id", "work_item__job_id", "work_item_id", "fingerprint", "work_item__session__session_id"
    )


def _watch(item_id: int, callback: Callback | None) -> None:
    """Its end will be told, since this commits with the job."""
    if callback is not None:
        WebhookWatch.objects.get_or_create(
            work_item_id=item_id, url=callback.url, defaults={"endpoint_id": callback.endpoint_id}
        )


def replace_unstarted(
    item_id: int, *, task: str, payload: Mapping[str, Any], goal: Mapping[str, Any] | None = None
) -> bool:
    """Give a turn that has never run another task; False when it has begun, ended or been taken meanwhile."""
    unstarted = WorkItem.objects.filter(pk=item_id, status__in=sorted(states.QUEUED), epoch=0)
    replaced = bool(unstarted.update(task=task, payload=dict(payload)))
    if replaced and goal is not None:
        WorkItem.objects.filter(pk=item_id).update(goal=dict(goal))
        redefine(item_id, goal)
    return replaced


def session_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {key: metadata[key] for key in ("domain", "team", "labels") if key in metadata}
