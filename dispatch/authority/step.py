"""The hot path: one transaction that settles what ended and claims what is free.

A run's end is written here and nowhere else: status, outcome, turn, session state, the next head, event, queue.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import DataError, IntegrityError, connection

from dispatch import states
from dispatch.authority.projection import rank_of
from dispatch.authority.statements import Statements, from_db, to_db
from dispatch.authority.store import Store, Unit, lock_sessions, retry_deadlock
from dispatch.clock import store_now
from dispatch.gates import read_gates
from dispatch.models import Question, WorkItem, WorkItemDependency
from dispatch.ports import Lease, Serves, Settled, Settlement, StepResult
from dispatch.states import QueueState, Verb

SQL = Statements("step.sql")
_FAILED = (states.FAILED, states.DEAD_LETTER)


@dataclass
class _Batch:
    """What the rows of one settlement add up to, written with one statement each."""

    turns: list[tuple[Any, ...]] = field(default_factory=list)
    outcomes: list[tuple[Any, ...]] = field(default_factory=list)
    events: list[tuple[Any, ...]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    acks: list[int] = field(default_factory=list)
    moves: list[tuple[int, int, float | None, float | None]] = field(default_factory=list)

    def write(self, store: Store, unit: Unit) -> None:
        if self.turns:
            SQL.many("add_turn", self.turns)
        if self.outcomes:
            SQL.many("add_outcome", self.outcomes)
        if self.events:
            SQL.many("add_event", self.events)
        for outcome, count in self.counts.items():
            SQL.run("count_outcome", (outcome, count))
        if unit.deferred:
            unit.touched.update(self.acks)
            unit.touched.update(item_id for item_id, *_ in self.moves)
            return
        if self.acks:
            store.transport.ack(self.acks)
        if self.moves:
            store.transport.promote(self.moves)
            unit.wake |= any(state == QueueState.CLAIMABLE for _, state, _, _ in self.moves)


class Step:
    """Settles and claims for one consumer."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def step(
        self, *, owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str
    ) -> StepResult:
        """One commit for all. A turn whose row is bad is settled alone as failed: its neighbours commit."""
        try:
            return retry_deadlock(lambda: self._once(owner, ttl_s, settle, want, serves, cursor))
        except (DataError, IntegrityError):
            if connection.in_atomic_block or not settle:
                raise
        if len(settle) == 1:
            return self._once(owner, ttl_s, [_as_failed(settle[0])], want, serves, cursor)
        half = len(settle) // 2
        first = self.step(owner=owner, ttl_s=ttl_s, settle=settle[:half], want=0, serves=serves, cursor=cursor)
        rest = self.step(owner=owner, ttl_s=ttl_s, settle=settle[half:], want=want, serves=serves, cursor=cursor)
        return StepResult(settled=[*first.settled, *rest.settled], lost=[*first.lost, *rest.lost], claimed=rest.claimed)

    def _once(
        self, owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str
    ) -> StepResult:
        settled: list[Settled] = []
        lost: list[Settlement] = []
        claimed: list[Lease] = []
        with self._store.transaction() as unit:
            if settle:
                settled, lost = self._settle(settle, unit)
            if want > 0:
                claimed = self._claim(owner, ttl_s, want, serves, cursor, unit)
        return StepResult(settled=settled, lost=lost, claimed=claimed)

    # -- settle --------------------------------------------------------------------------------------------------------
    def _settle(self, settlements: Sequence[Settlement], unit: Unit) -> tuple[list[Settled], list[Settlement]]:
        if connection.vendor == "postgresql":
            lock_sessions(s.lease.session_pk for s in settlements)
            self._store.transport.rows(sorted(s.lease.item_id for s in settlements))
        now = store_now()
        batch, settled, lost = _Batch(), [], []
        for settlement in settlements:
            written = self._settle_one(settlement, now, batch, unit)
            if written is None:
                lost.append(settlement)
            else:
                settled.append(written)
        batch.write(self._store, unit)
        return settled, lost

    def _settle_one(self, s: Settlement, now: datetime, batch: _Batch, unit: Unit) -> Settled | None:
        lease, stamp = s.lease, to_db(now)
        final = s.verb in states.FINAL_VERBS
        open_status = states.SUSPENDED if s.verb == Verb.SUSPEND else states.READY
        due = now + timedelta(seconds=s.delay_s) if s.delay_s else None
        suspended_for = (s.code or "") if s.verb == Verb.SUSPEND else ""
        rows = SQL.run(
            "settle_item",
            (
                int(final),
                s.verb if final else open_status,
                open_status,
                int(s.verb in states.NO_ATTEMPT_VERBS),
                int(final),
                stamp,
                to_db(due),
                suspended_for,
                suspended_for,
                lease.item_id,
                lease.epoch,
                lease.owner,
            ),
        )
        if not rows:
            return None  # the fence is lost: whoever holds it now writes its own end
        ((session_pk, seq, attempt, status, started_at, cancel_at, cancel_code, cancel_reason),) = rows
        ended = status in states.TERMINAL
        code, message = s.code, s.message
        if ended and not final:  # a requested cancel won over the way back to the queue
            code, message = cancel_code or states.ErrorCode.CANCELLED, cancel_reason
        elif status == states.CANCELLED and cancel_at is not None:
            code, message = cancel_code or code, cancel_reason or message
        number = (
            self._end(s, status, code, message, session_pk, seq, stamp, now, batch)
            if ended
            else self._return(s, status, session_pk, due, now, batch, unit)
        )
        if ended:
            unit.ended.add(lease.item_id)
        run_status = status if ended else s.verb
        batch.turns.append(
            (session_pk, number, lease.epoch, lease.item_id, run_status, lease.attempt, started_at, stamp)
        )
        batch.events.append(
            (
                lease.item_id,
                stamp,
                run_status,
                states.RUNNING,
                status,
                attempt,
                lease.owner,
                lease.epoch,
                _reason(code, message),
            )
        )
        return Settled(item_id=lease.item_id, epoch=lease.epoch, status=status, verb=s.verb)

    def _end(
        self,
        s: Settlement,
        status: str,
        code: str | None,
        message: str | None,
        session_pk: int,
        seq: int,
        stamp: Any,
        now: datetime,
        batch: _Batch,
    ) -> int:
        """The turn is over: outcome, the session's memory, the next head."""
        item_id = s.lease.item_id
        following = SQL.run("next_turn", (session_pk, seq))
        next_id, next_seq, next_status, next_due, next_priority = following[0] if following else (None,) * 5
        idle = "failed" if status in _FAILED else "idle"
        ((number, desired),) = SQL.run(
            "settle_session_final",
            (next_seq, stamp, int(next_id is not None), idle, stamp, stamp, session_pk),
        )
        succeeded = status == states.SUCCEEDED
        if succeeded and s.state is not None and s.state != s.lease.state:
            SQL.run("session_state", (_json(s.state), session_pk))
        batch.outcomes.append(
            (
                item_id,
                s.lease.epoch,
                status,
                _json(s.result) if succeeded else None,
                "" if succeeded else code or "",
                "" if succeeded else message or "",
                stamp,
            )
        )
        outcome = states.counter_outcome(status, code)
        batch.counts[outcome] = batch.counts.get(outcome, 0) + 1
        batch.acks.append(item_id)
        if next_id is not None and next_status == states.READY:
            due = from_db(next_due)
            later = due is not None and due > now
            state = states.queue_state(status=next_status, is_head=True, desired=desired, due_later=later)
            batch.moves.append(
                (next_id, state, due.timestamp() if due else None, rank_of(now.timestamp(), next_priority))
            )
        return int(number)

    def _return(
        self,
        s: Settlement,
        status: str,
        session_pk: int,
        due: datetime | None,
        now: datetime,
        batch: _Batch,
        unit: Unit,
    ) -> int:
        """The turn goes back to the queue, or is suspended; it stays the head of its session."""
        stamp, asks = to_db(now), status == states.SUSPENDED and s.code == "input"
        ((number, desired),) = SQL.run("settle_session_open", (stamp, int(asks), stamp, stamp, session_pk))
        state = states.queue_state(status=status, is_head=True, desired=desired, due_later=due is not None)
        priority = WorkItem.objects.values_list("priority", flat=True).get(pk=s.lease.item_id)
        rank = None if s.verb == Verb.HANDBACK else rank_of(now.timestamp(), priority)
        batch.moves.append((s.lease.item_id, state, due.timestamp() if due else None, rank))
        if asks:
            Question.objects.create(
                work_item_id=s.lease.item_id,
                session_id=session_pk,
                epoch=s.lease.epoch,
                question=s.question or "",
                choices=list(s.choices) if s.choices else None,
                asked_at=now,
            )
        elif status == states.SUSPENDED:
            children = WorkItem.objects.filter(job_id__in=list(s.wait_for), tenant=s.lease.tenant)
            pks = list(children.values_list("pk", flat=True))
            WorkItemDependency.objects.bulk_create(
                [WorkItemDependency(work_item_id=s.lease.item_id, parent_id=pk, kind="child") for pk in pks],
                ignore_conflicts=True,
            )
            unit.ended.update(pks)  # those that ended before we were suspended wake it right after the commit
        return int(number)

    # -- claim ---------------------------------------------------------------------------------------------------------
    def _claim(self, owner: str, ttl_s: float, want: int, serves: Serves, cursor: str, unit: Unit) -> list[Lease]:
        now = store_now()
        gates = read_gates()
        deliveries = self._store.transport.receive(
            want=want, serves=serves, gates=gates, cursor=cursor, now=now.timestamp()
        )
        if not deliveries:
            return []
        return self.lease([d.item_id for d in deliveries], owner=owner, ttl_s=ttl_s, now=now, unit=unit)

    def lease(self, item_ids: Iterable[int], *, owner: str, ttl_s: float, now: datetime, unit: Unit) -> list[Lease]:
        """Lease items whose queue rows are ours. A row that was stale is put right and leases nothing."""
        stamp, until = to_db(now), to_db(now + timedelta(seconds=ttl_s))
        leases, events = [], []
        for item_id in item_ids:
            rows = SQL.run("claim_item", (owner, until, stamp, item_id))
            if not rows:
                unit.touched.add(item_id)
                continue
            lease = self._lease(rows[0], owner)
            leases.append(lease)
            events.append(
                (item_id, stamp, states.RUNNING, states.READY, states.RUNNING, lease.attempt, owner, lease.epoch, "")
            )
        if events:
            SQL.many("add_event", events)
        return leases

    @staticmethod
    def _lease(row: tuple[Any, ...], owner: str) -> Lease:
        (item_id, epoch, job_id, tenant, session_pk, seq, kind, agent, attempt, most, lost, deadline, task) = row[:13]
        payload, checkpoint, suspended_for = row[13:]
        ((session_id, turns, state),) = SQL.run("session_for_claim", (session_pk,))
        return Lease(
            item_id=item_id,
            epoch=epoch,
            owner=owner,
            job_id=job_id,
            tenant=tenant,
            session_pk=session_pk,
            session_id=session_id,
            session_seq=seq,
            turn_number=turns + 1,
            kind=kind,
            agent_name=agent,
            attempt=attempt,
            max_attempts=most,
            on_worker_lost=lost,
            deadline=from_db(deadline),
            task=task,
            payload=_loads(payload),
            state=_loads(state),
            checkpoint=_loads(checkpoint),
            resumed=bool(suspended_for),
        )


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _loads(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _reason(code: str | None, message: str | None) -> str:
    return ": ".join(part for part in (code, message) if part)[:1000]


def _as_failed(settlement: Settlement) -> Settlement:
    """What could not be stored ends as failed, with words of ours."""
    return replace(
        settlement,
        verb=Verb.FAILED,
        result=None,
        state=None,
        code=states.ErrorCode.AGENT_ERROR,
        message="the result could not be stored",
        question=None,
        choices=None,
        wait_for=(),
    )


def session_after(status: str, *, desired: str, head_status: str | None, asks: bool) -> str:
    """What a session's status becomes when its head is known; used by the cold paths."""
    if desired == "pause":
        return "pause_requested" if head_status in states.LIVE else "paused"
    if head_status is None:
        return status if status in ("failed", "cancelled") else "idle"
    if desired == "kill" and head_status in states.LIVE:
        return "kill_requested"
    if head_status == states.SUSPENDED and asks:
        return "needs_input"
    return "active"


def counts_of(pairs: Iterable[tuple[str, str | None]]) -> Mapping[str, int]:
    """Counter outcomes of (status, code) pairs."""
    counts: dict[str, int] = {}
    for status, code in pairs:
        outcome = states.counter_outcome(status, code)
        counts[outcome] = counts.get(outcome, 0) + 1
    return counts
