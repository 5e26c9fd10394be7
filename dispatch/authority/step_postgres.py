"""The hot path on Postgres: one statement, one commit, one round trip, through the function that a migration installs.

What it settles and claims is the same as in `step`, whose portable statements still settle suspensions, every step
inside a caller's transaction, and every step that claims under a limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection

from dispatch.authority.limits import read_holds
from dispatch.authority.statements import to_json
from dispatch.authority.step import SQL, Step
from dispatch.authority.store import Store
from dispatch.ports import Gates, Lease, Serves, Settled, Settlement, StepResult
from dispatch.states import TERMINAL, Verb, counter_outcome

CALL = "SELECT * FROM dispatch_step_v1(" + ", ".join(
    (
        "%s, %s, %s::bigint[], %s::bigint[], %s::int[], %s::text[], %s::jsonb[], %s::jsonb[]",
        "%s::float8[], %s::text[], %s::text[], %s, %s, %s::text[], %s::text[], %s::text[])",
    )
)


@dataclass
class Answer:
    """What the function said. `freed`: who is the head now, claimable or not; `watched`: ended, and others wait for it;
    `stale`: its queue row was wrong."""

    settled: list[Settled] = field(default_factory=list)
    lost: list[Settlement] = field(default_factory=list)
    claimed: list[Lease] = field(default_factory=list)
    freed: set[int] = field(default_factory=set)
    watched: set[int] = field(default_factory=set)
    stale: set[int] = field(default_factory=set)


class PostgresStep(Step):
    """`follow_up` is called with ended items that others wait for, `put_right` with items whose queue row was stale."""

    def __init__(
        self, store: Store, *, follow_up: Callable[[set[int]], None], put_right: Callable[[set[int]], None]
    ) -> None:
        super().__init__(store)
        self._follow_up = follow_up
        self._put_right = put_right

    def _once(
        self, owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str
    ) -> StepResult:
        portable = [s for s in settle if s.verb == Verb.SUSPEND or s.lease.owner != owner]
        if connection.in_atomic_block or len(portable) == len(settle) > 0:
            return super()._once(owner, ttl_s, settle, want, serves, cursor)
        gates, limited = read_holds(serves) if want else (Gates(), False)
        if limited:
            return super()._once(owner, ttl_s, settle, want, serves, cursor)
        first = super()._once(owner, ttl_s, portable, 0, serves, cursor) if portable else StepResult()
        written = {id(s) for s in portable}
        rest = self._call(owner, ttl_s, [s for s in settle if id(s) not in written], want, serves, cursor, gates)
        return StepResult(settled=[*first.settled, *rest.settled], lost=[*first.lost, *rest.lost], claimed=rest.claimed)

    def _call(
        self,
        owner: str,
        ttl_s: float,
        settle: Sequence[Settlement],
        want: int,
        serves: Serves,
        cursor: str,
        gates: Gates,
    ) -> StepResult:
        return self._followed(self._ask(owner, ttl_s, settle, want, serves, cursor, gates))

    def _followed(self, answer: Answer) -> StepResult:
        """Do what an answer asks for, in transactions of its own."""
        if answer.watched:
            self._follow_up(answer.watched)
        if answer.stale:
            SQL.run("count_outcome", ("skipped", len(answer.stale)))
            self._put_right(answer.stale)
        return StepResult(settled=answer.settled, lost=answer.lost, claimed=answer.claimed)

    @staticmethod
    def _ask(
        owner: str,
        ttl_s: float,
        settle: Sequence[Settlement],
        want: int,
        serves: Serves,
        cursor: str,
        gates: Gates,
    ) -> Answer:
        with connection.cursor() as database:
            database.execute(CALL, _parameters(owner, ttl_s, settle, want, serves, cursor, gates))
            rows = database.fetchall()
        return read_answer(rows, settle, owner)


def read_answer(rows: Sequence[Sequence[Any]], settle: Sequence[Settlement], owner: str) -> Answer:
    """What the rows of the function say of this settlement and claim."""
    asked = {s.lease.item_id: s for s in settle}
    answer = Answer()
    for row in rows:
        what, item_id, epoch, status, code = row[:5]
        if what == "settled":
            verb, following = asked.pop(item_id).verb, row[7]
            outcome = counter_outcome(status, code)
            answer.settled.append(Settled(item_id=item_id, epoch=epoch, status=status, verb=verb, outcome=outcome))
            freed = following if status in TERMINAL else item_id
            answer.freed |= {freed} if freed is not None else set()
        elif what == "claimed":
            answer.claimed.append(_lease(row, owner))
        else:
            (answer.watched if what == "watched" else answer.stale).add(item_id)
    answer.lost += asked.values()
    return answer


def _parameters(
    owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str, gates: Gates
) -> tuple[Any, ...]:
    return (owner, ttl_s, *settle_parameters(settle), want, cursor, *served(serves, gates))


def settle_parameters(settle: Sequence[Settlement]) -> tuple[list[Any], ...]:
    """One array each for what the function wants to know of a settlement."""
    return (
        [s.lease.item_id for s in settle],
        [s.lease.session_pk for s in settle],
        [s.lease.epoch for s in settle],
        [s.verb for s in settle],
        [to_json(s.result) for s in settle],
        [to_json(s.state) if s.state is not None and s.state != s.lease.state else None for s in settle],
        [s.delay_s or 0.0 for s in settle],
        [s.code for s in settle],
        [s.message for s in settle],
    )


def served(serves: Serves, gates: Gates) -> tuple[list[str], list[str], list[str]]:
    """Agents, kinds and shut tenants, the gates considered."""
    agents = [] if gates.fleet else [name for name in serves.agents if name not in gates.agents]
    return agents, [kind for kind in serves.kinds if kind not in gates.kinds], sorted(gates.tenants)


def _lease(row: Sequence[Any], owner: str) -> Lease:
    (_, item_id, epoch, _, _, job_id, tenant, session_pk, session_id, seq, number, kind, agent) = row[:13]
    attempt, most, lost, deadline, task, payload, state, checkpoint, suspended_for = row[13:22]
    return Lease(
        item_id=item_id,
        epoch=epoch,
        owner=owner,
        job_id=job_id,
        tenant=tenant,
        session_pk=session_pk,
        session_id=session_id,
        session_seq=seq,
        turn_number=number,
        kind=kind,
        agent_name=agent,
        attempt=attempt,
        max_attempts=most,
        on_worker_lost=lost,
        deadline=deadline,
        task=task,
        payload=json.loads(payload),
        state=json.loads(state),
        checkpoint=None if checkpoint is None else json.loads(checkpoint),
        resumed=bool(suspended_for),
    )
