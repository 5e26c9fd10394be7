"""The step where turns come as a broker's deliveries: claimed by job id from what the process has in hand.

Every delivery gets a verdict. One that is leased is held until its turn's end is committed; one that cannot be claimed
is acked, because its row says why, and whatever makes it claimable announces it anew; one for which there is no slot
goes back in hand. Nothing is acked before the commit.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any

from dispatch.authority.limits import Room, read_holds
from dispatch.authority.refusals import DUPLICATE, PARKED, Candidate, refusal
from dispatch.authority.statements import Statements, from_db
from dispatch.authority.step import SQL, Step
from dispatch.authority.store import Store, Unit
from dispatch.clock import store_now
from dispatch.models import DeadEnvelope
from dispatch.ports import Envelopes, Gates, Lease, Message, Serves, Settlement, StepResult
from dispatch.states import Refusal

CLAIM_SQL = Statements("claim.sql")
LOOK = 16  # deliveries judged at once, at least: those that are refused make room for others
KEPT_BYTES = 4096
UNREADABLE = "unreadable"
BUSY_LOOK_S = 10.0  # the longest time without a look into the rows while slots come free


class Look(IntEnum):
    """Whether a step looks into the rows: not, when nothing could be claimed of what is in hand, or before that."""

    NOT = 0
    LAST = 1
    FIRST = 2


@dataclass
class Hand:
    """The deliveries of one step, and the verdicts on them."""

    look: Look = Look.NOT
    taken: list[Message] = field(default_factory=list)
    refused: list[Message] = field(default_factory=list)
    leased: list[tuple[Lease, Message]] = field(default_factory=list)
    parked: int = 0
    missed: bool = False  # somebody was at a row that we wanted

    def left(self) -> list[Message]:
        judged = {id(message) for message in self.refused} | {id(message) for _, message in self.leased}
        return [message for message in self.taken if id(message) not in judged]


class _Local(threading.local):
    hand: Hand | None = None


class DeliveryStep(Step):
    """Claims from the inbox; where nothing comes in, or nothing has for a while, from the rows.

    `idle_s`: after so long with nothing in hand a consumer looks into the rows: a turn whose delivery went to a worker
    that is busy, or that does not run its agent, waits no longer than that for one that could run it. One whose hand is
    never empty takes from the rows once in ten seconds, the longest waiting first: what was acked while a pause held
    it, or went to another pool, does not wait for a quiet moment.
    """

    def __init__(self, store: Store, *, envelopes: Envelopes, idle_s: float, **more: Any) -> None:
        super().__init__(store, **more)
        self._envelopes = envelopes
        self._inbox = envelopes.inbox
        self._idle_s = idle_s
        self._look_at = 0.0
        self._busy_look_at = time.monotonic() + BUSY_LOOK_S
        self._local = _Local()

    def _once(
        self, owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str
    ) -> StepResult:
        look = self._look(want)
        if not settle and not look and self._inbox.listening and self._inbox.idle_s():
            return StepResult()
        return self._work(look, owner, ttl_s, settle, want, serves, cursor)

    def _work(
        self, look: Look, owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str
    ) -> StepResult:
        with self._borrowed(look) as hand:
            # the portable order of things; what the subclass for Postgres does in one statement is the settling
            result = Step._once(self, owner, ttl_s, settle, want, serves, cursor)
            for lease, message in hand.leased:
                self._inbox.hold(lease.fence, message, ttl_s=ttl_s)
            self._inbox.ack(hand.refused)
            self._envelopes.parked(hand.parked)
        self._inbox.settled([(s.item_id, s.epoch, owner) for s in result.settled])
        self._inbox.lost([s.lease.fence for s in result.lost])
        return result

    def _look(self, want: int) -> Look:
        """Once in `idle_s` for the whole process; two loops that look at once do no harm."""
        now = time.monotonic()
        if self._inbox.idle_s() >= self._idle_s and now >= self._look_at:
            look = Look.LAST
        elif want and now >= self._busy_look_at:
            look = Look.FIRST
        else:
            return Look.NOT
        self._look_at, self._busy_look_at = now + self._idle_s, now + BUSY_LOOK_S
        return look

    @contextmanager
    def _borrowed(self, look: Look) -> Iterator[Hand]:
        """What was taken and not judged, or judged in a transaction that failed, goes back in hand."""
        hand = self._local.hand = Hand(look=look)
        try:
            yield hand
        except BaseException:
            self._inbox.put_back(hand.taken)
            raise
        else:
            self._inbox.put_back(hand.left(), soon=hand.missed)
        finally:
            self._local.hand = None

    # -- claim ---------------------------------------------------------------------------------------------------------
    def _claim(self, owner: str, ttl_s: float, want: int, serves: Serves, cursor: str, unit: Unit) -> list[Lease]:
        hand = self._local.hand
        assert hand is not None
        if not self._inbox.listening:
            return super()._claim(owner, ttl_s, want, serves, cursor, unit)
        if hand.look is Look.FIRST and (leases := super()._claim(owner, ttl_s, want, serves, cursor, unit)):
            return leases
        gates, limited = read_holds(serves)
        room = Room(agents=serves.agents) if limited else None
        now = store_now() if room is None else room.now
        leases = []
        while len(leases) < want and (batch := self._inbox.take(max(LOOK, 2 * (want - len(leases))), cursor)):
            hand.taken += batch
            ready = self._judge(batch, hand, serves, gates, now)
            messages = {item.item_id: message for item, message in ready}
            slots = want - len(leases)
            chosen = _fitting([item for item, _ in ready], slots, room)
            got = self._lease_of([item.item_id for item in chosen], owner, ttl_s, unit, room)
            hand.leased += [(lease, messages[lease.item_id]) for lease in got]
            leases += got
            hand.missed = len(got) < len(chosen)
            if len(chosen) == slots or hand.missed:
                break  # no slot is left, or somebody else is at a row that we want: again in the next step
            # what a limit holds stays in hand, and others behind it have their turn
        if len(leases) < want and unit.freed:
            leases += self._claim_freed(owner, ttl_s, want - len(leases), serves, gates, now, unit, room)
        if room is not None:
            room.save()
        if not leases and (hand.look or room is not None):  # a hand full of what a limit holds hides the others
            leases = super()._claim(owner, ttl_s, want, serves, cursor, unit)
        return leases

    def _lease_of(
        self, item_ids: Sequence[int], owner: str, ttl_s: float, unit: Unit, room: Room | None
    ) -> list[Lease]:
        taken = set(self._envelopes.take(item_ids)) if item_ids else set()
        if not taken:
            return []
        wanted, now = [item_id for item_id in item_ids if item_id in taken], store_now()
        leases = self.lease(wanted, owner=owner, ttl_s=ttl_s, now=now, unit=unit)
        if room is not None:
            room.take(leases, now)
        return leases

    def _claim_freed(
        self,
        owner: str,
        ttl_s: float,
        want: int,
        serves: Serves,
        gates: Gates,
        now: datetime,
        unit: Unit,
        room: Room | None,
    ) -> list[Lease]:
        """Heads that this very step has freed need no envelope when there is a slot for them here."""
        rows = CLAIM_SQL.batch("look_up_items", [(item_id,) for item_id in sorted(unit.freed)])
        ready = [c for c in map(candidate, rows) if not refusal(c, serves=serves, gates=gates, now=now)]
        leases = self._lease_of([c.item_id for c in _fitting(ready, want, room)], owner, ttl_s, unit, room)
        unit.freed.difference_update(lease.item_id for lease in leases)
        return leases

    def _judge(
        self, batch: Sequence[Message], hand: Hand, serves: Serves, gates: Gates, now: datetime
    ) -> list[tuple[Candidate, Message]]:
        """Refuse what cannot be claimed; answers what can, in the order of the deliveries."""
        jobs = sorted({message.envelope.job_id for message in batch if message.envelope is not None})
        rows = CLAIM_SQL.batch("look_up", [(job_id,) for job_id in jobs]) if jobs else []
        return self._sort(batch, {item.job_id: item for item in map(candidate, rows)}, hand, serves, gates, now)

    def _sort(
        self,
        batch: Sequence[Message],
        found: Mapping[str, Candidate],
        hand: Hand,
        serves: Serves,
        gates: Gates,
        now: datetime,
    ) -> list[tuple[Candidate, Message]]:
        ready: dict[int, tuple[Candidate, Message]] = {}
        duplicates = 0
        for message in batch:
            if message.envelope is None:
                self._bury(message, UNREADABLE, hand, now)
                continue
            item = found.get(message.envelope.job_id)
            if item is None:
                self._bury(message, Refusal.UNKNOWN, hand, now)
                continue
            if item.tenant != message.envelope.tenant:
                self._bury(message, Refusal.TENANT_MISMATCH, hand, now)
                continue
            reason = refusal(item, serves=serves, gates=gates, now=now)
            if reason is None:
                ready.setdefault(item.item_id, (item, message))  # a second one is judged when the first has its verdict
                continue
            hand.refused.append(message)
            hand.parked += reason in PARKED
            duplicates += reason in DUPLICATE
        if duplicates:
            SQL.run("count_outcome", ("skipped", duplicates))
        return list(ready.values())

    @staticmethod
    def _bury(message: Message, reason: str, hand: Hand, now: datetime) -> None:
        """No WorkItem stands behind it: keep what it says, once, and let the partition go on."""
        raw = message.raw
        digest = hashlib.sha256(raw).hexdigest()
        if not DeadEnvelope.objects.filter(digest=digest, reason=reason).exists():
            DeadEnvelope.objects.create(
                digest=digest, body=raw[:KEPT_BYTES], size=len(raw), transport="kafka", reason=reason, seen_at=now
            )
        hand.refused.append(message)


def _fitting(ready: Sequence[Candidate], want: int, room: Room | None) -> Sequence[Candidate]:
    """The first of them that may start now, at most `want`."""
    return ready[:want] if room is None else room.pick(ready, want)


def candidate(row: tuple[Any, ...]) -> Candidate:
    item_id, job_id, tenant, status, seq, head, desired, kind, agent, due_at, deadline = row
    return Candidate(
        item_id=item_id,
        job_id=job_id,
        tenant=tenant,
        status=status,
        session_seq=seq,
        head_seq=head,
        desired=desired,
        kind=kind,
        agent_name=agent,
        due_at=from_db(due_at),
        deadline=from_db(deadline),
    )
