"""The hot path: one transaction that settles what ended and claims what is free.

A run's end is written here and nowhere else: status, outcome, turn, session state, the next head, event, queue.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db import DataError, IntegrityError, connection

from dispatch import states
from dispatch.authority.limits import Room, read_holds
from dispatch.authority.projection import rank_of
from dispatch.authority.questions import ask
from dispatch.authority.statements import Statements, from_db, to_db, to_json
from dispatch.authority.store import Store, Unit, lock_sessions, retry_deadlock
from dispatch.clock import store_now
from dispatch.models import WorkItem, WorkItemDependency
from dispatch.ports import Delivery, Gates, Lease, Serves, Settled, Settlement, StepResult
from dispatch.states import QueueState, Verb

SQL = Statements("step.sql")
_FAILED = (states.FAILED, states.DEAD_LETTER)
# what the database refuses to store, and what does not become JSON, text or a time in the first place
_UNFIT = (DataError, IntegrityError, ValueError, TypeError, OverflowError, RecursionError)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """A settlement whose fence held, and what its item has become."""

    settlement: Settlement
    session_pk: int
    seq: int
    attempt: int
    status: str
    started_at: Any
    priority: int
    code: str | None
    message: str | None

    @property
    def over(self) -> bool:
        return self.status in states.TERMINAL


@dataclass
class _Batch:
    """What the rows of one settlement add up to, written with one statement each."""

    turns: list[tuple[Any, ...]] = field(default_factory=list)
    outcomes: list[tuple[Any, ...]] = field(default_factory=list)
    events: list[tuple[Any, ...]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    memories: list[tuple[str, int]] = field(default_factory=list)
    acks: list[int] = field(default_factory=list)
    moves: list[tuple[int, int, float | None, float | None]] = field(default_factory=list)

    def end(self, run: _Run, stamp: Any) -> None:
        """Note the outcome of a turn that is over, and what its session remembers."""
        s, succeeded = run.settlement, run.status == states.SUCCEEDED
        if succeeded and s.state is not None:
            self.memories.append((to_json(s.state), run.session_pk))
        self.outcomes.append(
            (
                s.lease.item_id,
                s.lease.epoch,
                run.status,
                to_json(s.result) if succeeded else None,
                "" if succeeded else run.code or "",
                "" if succeeded else run.message or "",
                stamp,
            )
        )
        outcome = states.counter_outcome(run.status, run.code)
        self.counts[outcome] = self.counts.get(outcome, 0) + 1
        self.acks.append(s.lease.item_id)

    def promote(self, following: Sequence[Any], desired: str, now: datetime) -> None:
        """Let the next turn of a session be its head."""
        item_id, _, status, due_at, priority = following
        if status != states.READY:
            return
        due = from_db(due_at)
        later = due is not None and due > now
        state = states.queue_state(status=status, is_head=True, desired=desired, due_later=later)
        self.moves.append((item_id, state, due.timestamp() if due else None, rank_of(now.timestamp(), priority)))

    def note(self, run: _Run, number: int, stamp: Any) -> None:
        """Note the turn and its event."""
        lease, event = run.settlement.lease, run.status if run.over else run.settlement.verb
        self.turns.append(
            (run.session_pk, number, lease.epoch, lease.item_id, event, lease.attempt, run.started_at, stamp)
        )
        reason = _reason(run.code, run.message)
        self.events.append(
            (
                lease.item_id,
                stamp,
                event,
                states.RUNNING,
                run.status,
                run.attempt,
                lease.owner,
                lease.epoch,
                reason,
            )
        )

    def write(self, store: Store, unit: Unit) -> None:
        if self.turns:
            SQL.many("add_turn", self.turns)
        if self.outcomes:
            SQL.many("add_outcome", self.outcomes)
        if self.events:
            SQL.many("add_event", self.events)
        if self.memories:
            SQL.many("session_state", self.memories)
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
            unit.freed.update(item_id for item_id, state, _, _ in self.moves if state == QueueState.CLAIMABLE)


class Step:
    """Settles and claims for one consumer."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def rest(self) -> None:
        """Called before the thread waits, for what need not wait for another step."""

    def step(
        self, *, owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str
    ) -> StepResult:
        """One commit for all. A turn whose row is bad is settled alone as failed: its neighbours commit."""
        try:
            return retry_deadlock(lambda: self._once(owner, ttl_s, settle, want, serves, cursor))
        except _UNFIT:
            if connection.in_atomic_block or not settle:
                raise
        if len(settle) == 1 and not want:
            return self._once(owner, ttl_s, [_as_failed(settle[0])], 0, serves, cursor)
        # with a claim in it, the claim is what goes apart first: it may have been the one that was refused
        half = len(settle) if want else len(settle) // 2
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
        rows = _settle_items(settlements, now)
        runs = [_run(s, rows[s.lease.fence[:2]]) for s in settlements if s.lease.fence[:2] in rows]
        batch = _Batch()
        numbers = self._end([run for run in runs if run.over], now, batch, unit)
        numbers |= {run.session_pk: self._return(run, now, batch, unit) for run in runs if not run.over}
        for run in runs:
            batch.note(run, numbers[run.session_pk], to_db(now))
        batch.write(self._store, unit)
        settled = [
            Settled(
                item_id=run.settlement.lease.item_id,
                epoch=run.settlement.lease.epoch,
                status=run.status,
                verb=run.settlement.verb,
                outcome=states.counter_outcome(run.status, run.code) if run.over else "",
            )
            for run in runs
        ]
        return settled, [s for s in settlements if s.lease.fence[:2] not in rows]

    def _end(self, runs: Sequence[_Run], now: datetime, batch: _Batch, unit: Unit) -> dict[int, int]:
        """These turns are over: outcomes, the sessions' memory, the next heads. Answers the turn number by session."""
        if not runs:
            return {}
        stamp = to_db(now)
        following = {row[0]: row[1:] for row in SQL.batch("next_turns", [(run.session_pk, run.seq) for run in runs])}
        sessions = [
            (
                run.session_pk,
                following[run.session_pk][1] if run.session_pk in following else None,
                "failed" if run.status in _FAILED else "idle",
                run.settlement.lease.owner,
                int(run.settlement.ended),
            )
            for run in runs
        ]
        desires: dict[int, str] = {}
        numbers: dict[int, int] = {}
        for session_pk, number, desired in SQL.batch("settle_sessions_final", sessions, after=(stamp, stamp, stamp)):
            numbers[session_pk], desires[session_pk] = int(number), desired
        for run in runs:
            batch.end(run, stamp)
            if run.session_pk in following:
                batch.promote(following[run.session_pk], desires[run.session_pk], now)
        unit.ended.update(_waited_for([run.settlement.lease.item_id for run in runs]))
        return numbers

    def _return(self, run: _Run, now: datetime, batch: _Batch, unit: Unit) -> int:
        """The turn goes back to the queue, or is suspended; it stays the head of its session. Answers its number."""
        s, stamp = run.settlement, to_db(now)
        due = _due(s, now)
        asks = run.status == states.SUSPENDED and s.code == "input"
        written = (stamp, int(asks), int(s.ended), stamp, s.lease.owner, stamp, run.session_pk)
        ((number, desired),) = SQL.run("settle_session_open", written)
        state = states.queue_state(status=run.status, is_head=True, desired=desired, due_later=due is not None)
        rank = None if s.verb == Verb.HANDBACK else rank_of(now.timestamp(), run.priority)
        batch.moves.append((s.lease.item_id, state, due.timestamp() if due else None, rank))
        if asks:
            ask(s, run.session_pk, now)
        elif run.status == states.SUSPENDED:
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
        gates, limited = read_holds(serves)
        room = Room(agents=serves.agents) if limited else None
        now = room.now if room else store_now()

        def receive(most: int, shut: Gates, after: str) -> list[Delivery]:
            return self._store.transport.receive(
                want=most, serves=serves, gates=shut, cursor=after, now=now.timestamp()
            )

        def lease(deliveries: Sequence[Delivery], at: datetime) -> list[Lease]:
            return self.lease([d.item_id for d in deliveries], owner=owner, ttl_s=ttl_s, now=at, unit=unit)

        if room is not None:
            return room.fill(want, gates, cursor, receive=receive, lease=lease)
        deliveries = receive(want, gates, cursor)
        return lease(deliveries, store_now()) if deliveries else []

    def lease(self, item_ids: Iterable[int], *, owner: str, ttl_s: float, now: datetime, unit: Unit) -> list[Lease]:
        """Lease items whose queue rows are ours. A row that was stale is put right and leases nothing.

        `now` is read with the rows in hand: no lease begins before the end of the turn that made its own claimable.
        """
        wanted = list(item_ids)
        stamp, until = to_db(now), to_db(now + timedelta(seconds=ttl_s))
        claimed = SQL.batch("claim_items", [(i,) for i in wanted], before=(owner, until, stamp), after=(stamp,))
        rows = {row[0]: row for row in claimed}
        if skipped := [item_id for item_id in wanted if item_id not in rows]:
            unit.touched.update(skipped)
            SQL.run("count_outcome", ("skipped", len(skipped)))
        leases = [self._lease(rows[item_id], owner) for item_id in wanted if item_id in rows]
        events = [
            (x.item_id, stamp, states.RUNNING, states.READY, states.RUNNING, x.attempt, owner, x.epoch, "")
            for x in leases
        ]
        if events:
            SQL.many("add_event", events)
        return leases

    @staticmethod
    def _lease(row: tuple[Any, ...], owner: str) -> Lease:
        (item_id, epoch, job_id, tenant, session_pk, seq, kind, agent, attempt, most, lost, deadline, task) = row[:13]
        payload, checkpoint, suspended_for, traceparent, session_id, turns, state = row[13:]
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
            traceparent=traceparent,
        )


def _settle_items(settlements: Sequence[Settlement], now: datetime) -> dict[tuple[int, int], tuple[Any, ...]]:
    """Write the items' ends under their fences: {(item, epoch): row}. One whose fence is lost is not in the answer."""
    stamp = to_db(now)
    final = [s for s in settlements if s.verb in states.FINAL_VERBS]
    rows: list[tuple[Any, ...]] = []
    for owner in {s.lease.owner for s in final}:
        mine = [(s.lease.item_id, s.lease.epoch, s.verb, int(s.ended)) for s in final if s.lease.owner == owner]
        rows += SQL.batch("settle_final", mine, after=(stamp, stamp, owner))
    for s in settlements:
        if s.verb not in states.FINAL_VERBS:
            suspends = s.verb == Verb.SUSPEND
            status, why = (states.SUSPENDED, s.code or "") if suspends else (states.READY, "")
            no_attempt = int(s.verb in states.NO_ATTEMPT_VERBS)
            due = to_db(_due(s, now))
            written = (status, no_attempt, stamp, int(s.ended), stamp, due, why, why, *s.lease.fence)
            rows += SQL.run("settle_open", written)
    return {(item_id, epoch): tuple(rest) for item_id, epoch, *rest in rows}


def _run(s: Settlement, row: tuple[Any, ...]) -> _Run:
    session_pk, seq, attempt, status, started_at, priority, cancel_at, cancel_code, cancel_reason = row
    code, message = s.code, s.message
    if status in states.TERMINAL and s.verb not in states.FINAL_VERBS:  # a requested cancel won over the way back
        code, message = cancel_code or states.ErrorCode.CANCELLED, cancel_reason
    elif status == states.CANCELLED and cancel_at is not None:
        code, message = cancel_code or code, cancel_reason or message
    return _Run(
        settlement=s,
        session_pk=session_pk,
        seq=seq,
        attempt=attempt,
        status=status,
        started_at=started_at,
        priority=priority,
        code=code,
        message=message,
    )


def _due(s: Settlement, now: datetime) -> datetime | None:
    return now + timedelta(seconds=s.delay_s) if s.delay_s else None


def _waited_for(item_ids: Sequence[int]) -> Iterable[int]:
    """Which of these are parents. On Postgres all may be: a dependent that commits beside us shows only afterwards."""
    if connection.vendor != "sqlite":
        return item_ids
    return [parent for (parent,) in SQL.batch("waited_for", [(i,) for i in item_ids])]


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
        delay_s=None,
        code=states.ErrorCode.AGENT_ERROR,
        message="the result could not be stored",
        question=None,
        choices=None,
        wait_for=(),
    )
