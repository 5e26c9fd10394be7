"""Who is served next: tenants in turn, the best rank first inside each. One algorithm over any claim index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dispatch.ports import Gates, Serves

Lane = tuple[str, str]  # (agent, kind)
Candidate = tuple[float, int]  # (rank, item id)


class ClaimIndex(Protocol):
    """What the ring asks of a store: three probes, each one step in an index over the claimable rows."""

    def has_rows(self, lane: Lane) -> bool: ...
    def next_tenant(self, lane: Lane, after: str) -> str | None: ...
    def best(self, lane: Lane, tenant: str, limit: int) -> list[Candidate]:
        """Up to `limit` rows not past their deadline, best rank first."""
        ...


def open_lanes(index: ClaimIndex, serves: Serves, gates: Gates) -> list[Lane]:
    if gates.fleet:
        return []
    return [
        (agent, kind)
        for agent in serves.agents
        if agent not in gates.agents
        for kind in serves.kinds
        if kind not in gates.kinds and index.has_rows((agent, kind))
    ]


def _next(index: ClaimIndex, lanes: Sequence[Lane], after: str) -> str | None:
    found = [tenant for lane in lanes if (tenant := index.next_tenant(lane, after)) is not None]
    return min(found) if found else None


def tenants_in_turn(
    index: ClaimIndex, lanes: Sequence[Lane], cursor: str, limit: int, shut: frozenset[str]
) -> list[str]:
    """The next `limit` tenants with a claimable row, round the ring from the last one served."""
    turn: list[str] = []
    after, wrapped = cursor, False
    while len(turn) < limit:
        tenant = _next(index, lanes, after)
        if tenant is None:
            if wrapped or after == "":
                break
            after, wrapped = "", True
            continue
        if wrapped and tenant > cursor:
            break
        after = tenant
        if tenant not in shut:
            turn.append(tenant)
    return turn


def pick(index: ClaimIndex, *, want: int, serves: Serves, gates: Gates, cursor: str) -> list[tuple[int, str]]:
    """(item id, tenant) of up to `want` rows, each tenant an equal share, then the rest to who has more."""
    lanes = open_lanes(index, serves, gates)
    if not lanes or want < 1:
        return []
    tenants = tenants_in_turn(index, lanes, cursor, want, gates.tenants)
    picked: list[tuple[int, str]] = []
    for place, tenant in enumerate(tenants):
        share = -(-(want - len(picked)) // (len(tenants) - place))
        candidates = [c for lane in lanes for c in index.best(lane, tenant, share)]
        if len(lanes) > 1:
            candidates.sort()
        picked += [(item_id, tenant) for _, item_id in candidates[:share]]
    return picked
