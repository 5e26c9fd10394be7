"""Caps and rates of claiming, exact over all workers: whoever claims under a limit holds its row until the commit.

Without a limit that concerns what a consumer serves nothing of this runs: one statement, which the claim needs for the
gates anyway, tells whether there is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from django.db import connection
from django.db.models import Q

from dispatch.authority.refusals import Candidate
from dispatch.authority.statements import Statements
from dispatch.clock import store_now
from dispatch.gates import gates_from
from dispatch.models import ClaimLimit
from dispatch.ports import Delivery, Gates, Lease, Serves
from dispatch.room import room_of, running_of

SQL = Statements("step.sql")


def read_holds(serves: Serves) -> tuple[Gates, bool]:
    """What is shut, and whether a limit may concern what is served."""
    rows = SQL.run("holds")
    if not rows:
        return gates_from(()), False
    gates = gates_from([(scope, name) for scope, name, limits in rows if not limits])
    return gates, any(limits and (scope == "tenant" or name in serves.agents) for scope, name, limits in rows)


class Room:
    """How many more turns each limit lets start, while its row is locked in the caller's transaction.

    The rows are locked by their keys, after every session lock and before any queue row of the claim; who waits for
    them holds nothing that a claimer waits for: a claim skips queue rows that others hold.
    """

    def __init__(self, *, agents: Iterable[str], tenant: str | None = None) -> None:
        """Of the limits of these agents, and of one tenant or all."""
        tenants = Q(scope="tenant") if tenant is None else Q(scope="tenant", name=tenant)
        rows = ClaimLimit.objects.filter(Q(scope="agent", name__in=list(agents)) | tenants).order_by("pk")
        self._limits = list(rows.select_for_update() if connection.vendor == "postgresql" else rows)
        running = [running_of(limit) for limit in self._limits]
        # under the locks, so what another claimer spent before is in the rows
        self.now: datetime = store_now()
        self._left = {(x.scope, x.name): room_of(x, n, self.now) for x, n in zip(self._limits, running, strict=True)}
        self._spent: set[ClaimLimit] = set()

    def fill(
        self,
        want: int,
        gates: Gates,
        cursor: str,
        *,
        receive: Callable[[int, Gates, str], Sequence[Delivery]],
        lease: Callable[[Sequence[Delivery], datetime], Sequence[Lease]],
    ) -> list[Lease]:
        """Claim up to `want`: never more at once than the narrowest limit has room for, and nothing of a full one."""
        leases: list[Lease] = []
        while want > 0:
            asked = self._at_once(want)
            deliveries = receive(asked, self._narrow(gates), cursor)
            if deliveries:
                at = store_now()
                claimed = lease(deliveries, at)
                self.take(claimed, at)
                leases += claimed
                want, cursor = want - len(deliveries), deliveries[-1].tenant
            if len(deliveries) < asked:
                break  # what is left, if anything, is for the next step: most often it is nothing
        self.save()
        return leases

    def _narrow(self, gates: Gates) -> Gates:
        """The gates, and with them every agent and tenant that has no room left."""
        full = [key for key, left in self._left.items() if left < 1]
        return replace(
            gates,
            agents=gates.agents | {name for scope, name in full if scope == "agent"},
            tenants=gates.tenants | {name for scope, name in full if scope == "tenant"},
        )

    def _at_once(self, want: int) -> int:
        """How many may be claimed, whichever they are, before the room must be looked at again."""
        return min([want, *(left for left in self._left.values() if left > 0)])

    def pick(self, candidates: Sequence[Candidate], want: int) -> list[Candidate]:
        """The first of them that the limits leave room for, at most `want`."""
        left = dict(self._left)
        picked: list[Candidate] = []
        for item in candidates:
            keys = [key for key in (("agent", item.agent_name), ("tenant", item.tenant)) if key in left]
            if len(picked) < want and all(left[key] >= 1 for key in keys):
                left.update({key: left[key] - 1 for key in keys})
                picked.append(item)
        return picked

    @property
    def is_full(self) -> bool:
        """Whether one of the limits has no room."""
        return any(left < 1 for left in self._left.values())

    def take(self, leases: Sequence[Lease], at: datetime) -> None:
        """Count turns that began at `at`: their tokens go out at that moment, which the timeline shows too."""
        started = Counter(key for lease in leases for key in (("agent", lease.agent_name), ("tenant", lease.tenant)))
        for limit in self._limits:
            count = started[limit.scope, limit.name]
            self._left[limit.scope, limit.name] -= count
            if count and limit.rate_per_s is not None:
                limit.tokens, limit.refilled_at = limit.tokens_at(at) - count, at
                self._spent.add(limit)

    def save(self) -> None:
        """Write what the buckets hold now."""
        for limit in self._spent:
            limit.save(update_fields=["tokens", "refilled_at"])
