"""How many workers the work asks for. `plan` is pure; `autoscale_read` gathers what it needs."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dispatch import wiring
from dispatch.access import Caller
from dispatch.inputs import Input, refusal
from fleet import selectors
from fleet.evidence import gather
from fleet.health import Evidence

MAX_WORKERS = 10_000

Reason = Literal["idle", "backlog", "at_min", "at_max", "evidence_not_healthy"]


class AutoscaleQuery(Input):
    """Bounds of the answer, and the slots of one worker process. A query string holds texts, so numbers are read."""

    model_config = ConfigDict(strict=False)

    min: int = Field(0, ge=0, le=MAX_WORKERS, description=f"a whole number from 0 to {MAX_WORKERS}")
    max: int = Field(100, ge=0, le=MAX_WORKERS, description=f"a whole number from 0 to {MAX_WORKERS}")
    capacity: int = Field(2, ge=1, le=MAX_WORKERS, description=f"a whole number from 1 to {MAX_WORKERS}")

    @model_validator(mode="after")
    def _in_order(self) -> AutoscaleQuery:
        if self.min > self.max:
            raise refusal({"min": "must not be over max"})
        return self


class AutoscaleBody(BaseModel):
    """`current` counts live slots in workers of `capacity`. Unless the evidence is healthy all but it is null."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    desired: int | None
    current: int | None
    reason: Reason
    claimable: int | None
    running: int | None
    oldest_ready_s: float | None
    evidence: Evidence


def plan(*, claimable: int, running: int, capacity: int, low: int, high: int) -> tuple[int, Reason]:
    """One slot for each turn that runs or could; a session counts once, however long its queue."""
    wanted = math.ceil((claimable + running) / capacity)
    if wanted > high:
        return high, "at_max"
    if wanted < low:
        return low, "at_min"
    return wanted, "backlog" if wanted else "idle"


def autoscale_read(*, caller: Caller, query: AutoscaleQuery) -> AutoscaleBody:
    """The answer for the caller's own turns; a platform key's is for all."""
    tenant = caller.scope_tenant

    def turns() -> tuple[selectors.ReadyTurns, int]:
        in_store = wiring.transport().capabilities.joins_state_transaction
        return selectors.ready_turns(tenant=tenant, queue_in_store=in_store), selectors.running_count(tenant=tenant)

    reading = gather(read_goals=lambda: selectors.goal_counts(tenant=tenant), read_sessions=turns, tenant=tenant)
    if not reading.evidence.autoscaling_ready or reading.sessions is None or reading.workers is None:
        return AutoscaleBody(
            desired=None,
            current=None,
            reason="evidence_not_healthy",
            claimable=None,
            running=None,
            oldest_ready_s=None,
            evidence=reading.evidence,
        )
    ready, running = reading.sessions
    desired, reason = plan(
        claimable=ready.count, running=running, capacity=query.capacity, low=query.min, high=query.max
    )
    slots = sum(worker.capacity for worker in reading.workers if not worker.draining)
    return AutoscaleBody(
        desired=desired,
        current=math.ceil(slots / query.capacity),
        reason=reason,
        claimable=ready.count,
        running=running,
        oldest_ready_s=ready.oldest_s,
        evidence=reading.evidence,
    )
