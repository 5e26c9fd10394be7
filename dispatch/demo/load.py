"""The demo's turns: given out round by round under a key each, so that a dispatch that failed may be repeated."""

from __future__ import annotations

import uuid
from collections import Counter

from django.db import DatabaseError, connection
from django.db.models import Count

from dispatch import states
from dispatch.access import Caller
from dispatch.demo.agents import NAME
from dispatch.errors import DispatchError, Invalid
from dispatch.models import WorkItem
from dispatch.services import job_dispatch_many
from dispatch.specs import DispatchSpec
from dispatch.wiring import transport
from sessions_app.models import Session

TENANT = "demo"
CALLER = Caller(tenant=TENANT, name="dispatch_demo", kind="system", scopes=frozenset({"read", "dispatch"}))


class StoreAway(Exception):
    """The store did not answer; the same call may be made again."""


class Load:
    """`sessions` sessions with a turn each per round. `handles`: {job id: session id} of what was admitted."""

    def __init__(self, *, sessions: int, most_s: float) -> None:
        self.mark = uuid.uuid4().hex[:8]
        self.sessions = sessions
        self.rounds = 0
        self.handles: dict[str, str] = {}
        self.doubled = 0  # looks at the store that saw two live leases of a session
        self._most_s = most_s

    def body(self, session: int, turn: str) -> dict[str, object]:
        """One dispatch: its key makes a repeat find the same job."""
        return {
            "task": f"turn {turn}",
            "agent_name": NAME,
            "session_id": f"demo-{self.mark}-{session}",
            "payload": {"most_s": self._most_s},
            "max_attempts": 100,
            "idempotency_key": f"demo-{self.mark}-{session}-{turn}",
        }

    def dispatch_round(self) -> None:
        """One more turn for each session; raises StoreAway when it must be called again."""
        bodies = [self.body(session, str(self.rounds + 1)) for session in range(self.sessions)]
        specs: list[DispatchSpec | Invalid] = [DispatchSpec.parse(body) for body in bodies]
        try:
            answers = job_dispatch_many(caller=CALLER, specs=specs)
        except (DatabaseError, DispatchError) as error:
            _recover()
            raise StoreAway from error
        refused = [answer for answer in answers if "job_id" not in answer]
        self.handles |= {answer["job_id"]: answer["session_id"] for answer in answers if "job_id" in answer}
        if refused:
            raise StoreAway(refused[0]["message"])
        self.rounds += 1

    def counts(self) -> Counter[str]:
        """Jobs of this load by stored status; raises StoreAway."""
        try:
            ours = WorkItem.objects.filter(tenant=TENANT, session_id__in=self._pks())
            rows = ours.order_by().values_list("status").annotate(n=Count("pk"))
            live = ours.filter(status__in=sorted(states.LIVE)).order_by().values("session_id").annotate(n=Count("pk"))
            self.doubled += live.filter(n__gt=1).count()
            return Counter(dict(rows))
        except DatabaseError as error:
            _recover()
            raise StoreAway from error

    def rows_left(self) -> int:
        """Queue rows of this load's jobs."""
        rows, after = 0, 0
        while page := transport().page(after=after, limit=1_000):
            rows, after = rows + sum(row.job_id in self.handles for row in page), page[-1].item_id
        return rows

    def _pks(self) -> list[int]:
        ours = Session.objects.filter(tenant=TENANT, session_id__startswith=f"demo-{self.mark}-")
        return list(ours.values_list("pk", flat=True))


def _recover() -> None:
    """The next call opens a connection of its own."""
    if not connection.in_atomic_block:
        connection.close()
