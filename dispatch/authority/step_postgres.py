"""The hot path on Postgres: one statement, one commit, one round trip, through the function that a migration installs.

What it settles and claims is the same as in `step`, whose portable statements still settle suspensions, every step
inside a caller's transaction, and every step that claims under a limit.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import connection

from dispatch.authority.limits import read_holds
from dispatch.authority.statements import to_json
from dispatch.authority.step import SQL, Step
from dispatch.authority.store import Store
from dispatch.ports import Lease, Serves, Settled, Settlement, StepResult
from dispatch.states import TERMINAL, Verb, counter_outcome

log = logging.getLogger("dispatch.authority")

CALL = "SELECT * FROM dispatch_step_v2(%s, %s, %s::json, %s, %s, %s::text[], %s::text[])"


@dataclass
class Answer:
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
        if connection.in_atomic_block or len(portable) == len(settle) > 0:
            return super()._once(owner, ttl_s, settle, want, serves, cursor)
        if want and self._is_limited(serves):
            return self._under_limits(owner, ttl_s, settle, want, serves, cursor)
        first = super()._once(owner, ttl_s, portable, 0, serves, cursor) if portable else StepResult()
        written = {id(s) for s in portable}
        left = [s for s in settle if id(s) not in written]
        rest = self._call(owner, ttl_s, left, want, serves, cursor)
        if rest is None:
            rest = self._under_limits(owner, ttl_s, left, want, serves, cursor)
        return StepResult(settled=[*first.settled, *rest.settled], lost=[*first.lost, *rest.lost], claimed=rest.claimed)

    def _under_limits(
        self, owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str
    ) -> StepResult:
        """Settle by the function and its own commit; only the claim holds the limits' rows."""
        ended = self._once(owner, ttl_s, settle, 0, serves, cursor) if settle else StepResult()
        try:
            return replace(ended, claimed=super()._once(owner, ttl_s, [], want, serves, cursor).claimed)
        except Exception:
            if not settle:
                raise
            log.warning("nothing claimed beside what was settled", exc_info=True)
            return ended  # what was settled must be told; the next step claims again, and says what is wrong

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
        return self._followed(answer)

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
    ) -> Answer:
        with connection.cursor() as database:
            database.execute(
                CALL, (owner, ttl_s, settle_parameter(settle), want, cursor, list(serves.agents), list(serves.kinds))
            )
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
        elif what == "limited":
            answer.limited = True
            return answer
        else:
            (answer.watched if what == "watched" else answer.stale).add(item_id)
    answer.lost += asked.values()
    return answer


def settle_parameter(settle: Sequence[Settlement]) -> str | None:
    """What ended, as the function reads it. Raises ValueError for what is no JSON."""
    return to_json([_written(s) for s in settle]) if settle else None


def _written(s: Settlement) -> dict[str, Any]:
    lease = s.lease
    return {
        "id": lease.item_id,
        "session": lease.session_pk,
        "epoch": lease.epoch,
        "verb": s.verb,
        "result": s.result,
        "state": s.state,
        "delay": s.delay_s or 0.0,
        "code": s.code,
        "message": s.message,
        "ended": s.ended,
    }


def _lease(row: Sequence[Any], owner: str) -> Lease:
    (_, item_id, epoch, _, _, job_id, tenant, session_pk, session_id, seq, number, kind, agent) = row[:13]
    attempt, most, lost, deadline, task, payload, state, checkpoint, suspended_for, traceparent = row[13:23]
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
        traceparent=traceparent,
    )
