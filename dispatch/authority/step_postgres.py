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
from dispatch.ports import Lease, Serves, Settled, Settlement, StepResult
from dispatch.states import TERMINAL, Verb, counter_outcome

CALL = "SELECT * FROM dispatch_step_v2(%s, %s, %s::json, %s, %s, %s::text[], %s::text[])"


@dataclass
class _Answer:
    """What the function said. `freed`: who is the head now, claimable or not; `watched`: ended, and others wait for it;
    `stale`: its queue row was wrong; `limited`: a limit concerns what was asked for, so nothing was done."""

    settled: list[Settled] = field(default_factory=list)
    lost: list[Settlement] = field(default_factory=list)
    claimed: list[Lease] = field(default_factory=list)
    freed: set[int] = field(default_factory=set)
    watched: set[int] = field(default_factory=set)
    stale: set[int] = field(default_factory=set)
    limited: bool = False


class PostgresStep(Step):
    """`follow_up` is called with ended items that others wait for, `put_right` with items whose queue row was stale."""

    def __init__(
        self, store: Store, *, follow_up: Callable[[set[int]], None], put_right: Callable[[set[int]], None]
    ) -> None:
        super().__init__(store)
        self._follow_up = follow_up
        self._put_right = put_right
        self._limited = False

    def _once(
        self, owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str
    ) -> StepResult:
        portable = [s for s in settle if s.verb == Verb.SUSPEND or s.lease.owner != owner]
        if connection.in_atomic_block or len(portable) == len(settle) > 0 or (want and self._is_limited(serves)):
            return super()._once(owner, ttl_s, settle, want, serves, cursor)
        first = super()._once(owner, ttl_s, portable, 0, serves, cursor) if portable else StepResult()
        written = {id(s) for s in portable}
        left = [s for s in settle if id(s) not in written]
        rest = self._call(owner, ttl_s, left, want, serves, cursor)
        if rest is None:
            rest = super()._once(owner, ttl_s, left, want, serves, cursor)
        return StepResult(settled=[*first.settled, *rest.settled], lost=[*first.lost, *rest.lost], claimed=rest.claimed)

    def _is_limited(self, serves: Serves) -> bool:
        """Whether a limit concerned the last claim, and one still does: only then it is worth a statement to look."""
        self._limited = self._limited and read_holds(serves)[1]
        return self._limited

    def _call(
        self, owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str
    ) -> StepResult | None:
        """None when nothing was done, because a limit concerns what is asked for."""
        answer = self._ask(owner, ttl_s, settle, want, serves, cursor)
        if answer.limited:
            self._limited = True
            return None
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
    ) -> _Answer:
        written = f"[{','.join(map(_written, settle))}]" if settle else None
        with connection.cursor() as database:
            database.execute(CALL, (owner, ttl_s, written, want, cursor, list(serves.agents), list(serves.kinds)))
            rows = database.fetchall()
        asked = {s.lease.item_id: s for s in settle}
        answer = _Answer()
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
            elif what == "limited":
                answer.limited = True
                return answer
            else:
                (answer.watched if what == "watched" else answer.stale).add(item_id)
        answer.lost += asked.values()
        return answer


def _written(s: Settlement) -> str:
    """One settlement as the function reads it. Raises ValueError for what is no JSON."""
    lease = s.lease
    changed = s.state if s.state != lease.state else None
    return to_json(
        {
            "id": lease.item_id,
            "session": lease.session_pk,
            "epoch": lease.epoch,
            "verb": s.verb,
            "result": s.result,
            "state": changed,
            "delay": s.delay_s or 0.0,
            "code": s.code,
            "message": s.message,
        }
    )


def _lease(row: Sequence[Any], owner: str) -> Lease:
    (_, item_id, epoch, _, _, job_id, tenant, session_pk, session_id, seq, number, kind, agent) = row[:13]
    attempt, most, lost, deadline, task, payload, state, checkpoint, suspended_for = row[13:]
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
