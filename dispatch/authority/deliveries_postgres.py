"""Deliveries on Postgres: one statement settles, claims by job id and says what became free, in one commit.

What it does is the same as in `deliveries`, whose portable statements still do it inside a caller's transaction, under
a limit, for a suspension, and where nothing comes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from django.db import DatabaseError, connection

from dispatch.authority.deliveries import DeliveryStep, Hand, Look, candidate
from dispatch.authority.posting import Post
from dispatch.authority.publication import envelope_of
from dispatch.authority.refusals import Candidate
from dispatch.authority.step_postgres import Answer, PostgresStep, read_answer, settle_parameter
from dispatch.authority.store import Unit
from dispatch.clock import store_now
from dispatch.envelope import AgentTurnEnvelope
from dispatch.ports import Gates, Message, Serves, Settled, Settlement, StepResult
from dispatch.states import Verb

CALL = "SELECT * FROM dispatch_deliver_v1(%s, %s, %s::json, %s, %s::text[], %s::text[], " + (
    "%s::text[], %s::text[], %s::bigint[], %s::int[])"
)
LOOK, LOOK_MOST = 8, 256  # deliveries judged by one call: few while they can be leased, many while they are parked
_OURS = ("seen", "freed")  # rows that only this function answers
_SINCE = 27
NOTHING = Serves(agents=(), kinds=())


class PostgresDeliveryStep(DeliveryStep, PostgresStep):
    """Each call of the function is a commit of its own: what it answered is kept whatever happens to the next."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._post = Post(self._envelopes)

    def rest(self) -> None:
        self._post.rest()

    def _work(
        self, look: Look, owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str
    ) -> StepResult:
        foreign = any(s.verb == Verb.SUSPEND or s.lease.owner != owner for s in settle)
        if look is Look.FIRST or foreign or connection.in_atomic_block or not self._inbox.listening:
            return super()._work(look, owner, ttl_s, settle, want, serves, cursor)
        if want and self._is_limited(serves):
            return super()._work(look, owner, ttl_s, settle, want, serves, cursor)
        aside: list[Message] = []  # claimable, and somebody else is at their rows, or these are stale: in the next step
        look_at = max(LOOK, 2 * want)
        done: StepResult | None = None
        try:
            done = self._deliver(owner, ttl_s, settle, want, look_at, serves, cursor, aside)
            if done is not None and want > len(done.claimed):
                done = self._go_on(done, look, owner, ttl_s, want, look_at, serves, cursor, aside)
        finally:
            # whoever has just sent one notes so in its row, which is locked meanwhile
            self._inbox.put_back(aside, soon=done is not None and len(done.claimed) < want)
        return super()._work(look, owner, ttl_s, settle, want, serves, cursor) if done is None else done

    def _go_on(
        self,
        done: StepResult,
        look: Look,
        owner: str,
        ttl_s: float,
        want: int,
        look_at: int,
        serves: Serves,
        cursor: str,
        aside: list[Message],
    ) -> StepResult:
        """Look at more deliveries while slots are left. What is committed is answered, whatever happens here."""
        try:
            while len(done.claimed) < want and not self._inbox.idle_s():
                look_at, left = min(4 * look_at, LOOK_MOST), want - len(done.claimed)
                more = self._deliver(owner, ttl_s, (), left, look_at, serves, cursor, aside)
                if more is None:
                    break
                done = _joined(done, more)
            if look and not done.claimed:
                done = _joined(done, self._call(owner, ttl_s, (), want, serves, cursor) or StepResult())
        except DatabaseError:
            if done == StepResult():
                raise
        return done

    def _deliver(
        self,
        owner: str,
        ttl_s: float,
        settle: Sequence[Settlement],
        want: int,
        look_at: int,
        serves: Serves,
        cursor: str,
        aside: list[Message],
    ) -> StepResult | None:
        """One call. Deliveries that got no verdict are put aside.

        None when nothing was done, because a limit concerns what is asked for.
        """
        hand = Hand(taken=self._inbox.take(look_at, cursor) if want else [])
        sent = self._post.take()
        try:
            rows = _rows(owner, ttl_s, settle, want, serves, hand, sent)
        except BaseException:
            self._inbox.put_back(hand.taken)
            self._post.put_back(sent)
            raise
        answer = read_answer([row for row in rows if row[0] not in _OURS], settle, owner)
        if answer.limited:
            self._limited = True
            self._inbox.put_back(hand.taken)
            self._post.put_back(sent)
            return None
        self._keep(hand, answer, owner, ttl_s)
        self._post.send([_head(row) for row in rows if row[0] == "freed"])
        self._refuse(hand, [row for row in rows if row[0] == "seen"], serves)
        aside += hand.left()
        return self._followed(answer)

    def _keep(self, hand: Hand, answer: Answer, owner: str, ttl_s: float) -> None:
        """What was committed: leases hold their deliveries, ends ack them."""
        messages = {m.envelope.job_id: m for m in reversed(hand.taken) if m.envelope is not None}
        hand.leased = [(lease, messages[lease.job_id]) for lease in answer.claimed if lease.job_id in messages]
        for lease, message in hand.leased:
            self._inbox.hold(lease.fence, message, ttl_s=ttl_s)
        self._inbox.settled([(s.item_id, s.epoch, owner) for s in answer.settled])
        self._inbox.lost([s.lease.fence for s in answer.lost])

    def _refuse(self, hand: Hand, seen: Sequence[Sequence[Any]], serves: Serves) -> None:
        """Judge the rest. A second delivery of what was leased is left for later; so is all, should the store fail."""
        leased = {lease.job_id for lease, _ in hand.leased}
        rest = [m for m in hand.left() if m.envelope is None or m.envelope.job_id not in leased]
        if not rest:
            return
        found = {item.job_id: item for item in map(_seen, seen)}
        with suppress(DatabaseError):
            self._sort(rest, found, hand, serves, Gates(), seen[0][_SINCE] if seen else store_now())
        self._inbox.ack(hand.refused)
        self._envelopes.parked(hand.parked)

    def _settle(self, settlements: Sequence[Settlement], unit: Unit) -> tuple[list[Settled], list[Settlement]]:
        """In the transaction of the portable order of things: by the function what it can settle."""
        owner = settlements[0].lease.owner
        portable = [s for s in settlements if s.verb == Verb.SUSPEND or s.lease.owner != owner]
        settled, lost = super()._settle(portable, unit) if portable else ([], [])
        rest = [s for s in settlements if s.verb != Verb.SUSPEND and s.lease.owner == owner]
        if rest:
            answer = self._ask(owner, 1.0, rest, 0, NOTHING, "")
            unit.ended |= answer.watched
            unit.freed |= answer.freed
            settled, lost = [*settled, *answer.settled], [*lost, *answer.lost]
        return settled, lost


def _rows(
    owner: str,
    ttl_s: float,
    settle: Sequence[Settlement],
    want: int,
    serves: Serves,
    hand: Hand,
    sent: Sequence[tuple[int, int]],
) -> list[tuple[Any, ...]]:
    jobs = {m.envelope.job_id: m.envelope.tenant for m in hand.taken if m.envelope is not None}
    parameters: tuple[Any, ...] = (
        owner,
        ttl_s,
        settle_parameter(settle),
        want,
        list(serves.agents),
        list(serves.kinds),
        list(jobs),
        list(jobs.values()),
        [item_id for item_id, _ in sent],
        [epoch for _, epoch in sent],
    )
    with connection.cursor() as database:
        database.execute(CALL, parameters)
        rows: list[tuple[Any, ...]] = database.fetchall()
        return rows


def _joined(one: StepResult, other: StepResult) -> StepResult:
    return replace(one, claimed=[*one.claimed, *other.claimed])


def _seen(row: Sequence[Any]) -> Candidate:
    _, item_id, _, status, gate, job_id, tenant, _, _, seq, _, kind, agent = row[:13]
    head, desired, due_at = row[23:26]
    desired = "pause" if gate == "shut" else desired  # to this turn it is the same
    return candidate((item_id, job_id, tenant, status, seq, head, desired, kind, agent, due_at, row[16]))


def _head(row: Sequence[Any]) -> tuple[int, int, AgentTurnEnvelope]:
    _, item_id, epoch, _, _, job_id, tenant, _, session_id, _, _, kind, agent, attempt = row[:14]
    deadline, priority, since = row[16], row[26], row[_SINCE]
    envelope = envelope_of(
        job_id=job_id,
        session_id=session_id,
        kind=kind,
        agent_name=agent,
        tenant=tenant,
        priority=priority,
        deadline=deadline,
        attempt=attempt,
        at=since.timestamp(),
    )
    return item_id, epoch, envelope
