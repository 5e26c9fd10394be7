"""How many workers the work asks for: reads the signals, remembers the last answers, decides (fleet.scaling)."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dispatch.access import Caller
from dispatch.clock import store_now
from dispatch.inputs import Input, refusal
from fleet import goals, selectors
from fleet.capped import caps, startable
from fleet.evidence import gather
from fleet.health import Evidence
from fleet.models import ScaleMemory
from fleet.scaling import Memory, Policy, Reason, Signals, decide

MAX_WORKERS = 10_000
MAX_SECONDS = 86_400
MEMORIES = 1_000  # callers choose the policies: so many are remembered
FORGOTTEN_AFTER = timedelta(days=2)

_WORKERS = f"a whole number from 0 to {MAX_WORKERS}"
_SOME = f"a whole number from 1 to {MAX_WORKERS}"
_SECONDS = f"a number of seconds from 0 to {MAX_SECONDS}"


class AutoscaleQuery(Input):
    """Bounds of the answer, the slots of one worker process, and how fast the answer may move.

    A query string holds texts, so numbers are read.
    """

    model_config = ConfigDict(strict=False)

    min: int = Field(0, ge=0, le=MAX_WORKERS, description=_WORKERS)
    max: int = Field(100, ge=0, le=MAX_WORKERS, description=_WORKERS)
    capacity: int = Field(2, ge=1, le=MAX_WORKERS, description=_SOME)
    target: float = Field(1.0, ge=0.001, le=1000, description="a number of turns for each slot, 0.001 to 1000")
    max_wait_s: float | None = Field(None, gt=0, le=MAX_SECONDS, description=f"over 0, at most {MAX_SECONDS} seconds")
    step_up: int | None = Field(None, ge=1, le=MAX_WORKERS, description=_SOME)
    step_down: int | None = Field(None, ge=1, le=MAX_WORKERS, description=_SOME)
    deadband: float = Field(0.1, ge=0, le=1, description="a share from 0 to 1")
    cooldown_s: float = Field(0, ge=0, le=MAX_SECONDS, description=_SECONDS)
    stabilization_s: float = Field(300, ge=0, le=MAX_SECONDS, description=_SECONDS)

    @model_validator(mode="after")
    def _in_order(self) -> AutoscaleQuery:
        if self.min > self.max:
            raise refusal({"min": "must not be over max"})
        return self

    def policy(self) -> Policy:
        return Policy(**self.model_dump())


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


def autoscale_read(*, caller: Caller, query: AutoscaleQuery) -> AutoscaleBody:
    """The answer for the caller's own turns; a platform key's is for all.

    Fails closed: unless the evidence is healthy nothing is wanted and nothing is remembered.
    """
    tenant = caller.scope_tenant

    def turns() -> tuple[selectors.ReadyTurns, int]:
        ready = selectors.ready_turns(tenant=tenant)
        if rooms := caps():
            lanes = selectors.ready_lanes(tenant=tenant)
            ready = replace(ready, count=startable(lanes, rooms))
        return ready, selectors.running_count(tenant=tenant)

    reading = gather(read_goals=lambda: goals.goal_counts(tenant=tenant), read_sessions=turns, tenant=tenant)
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
    slots = sum(worker.capacity for worker in reading.workers if not worker.draining)
    signals = Signals(
        claimable=ready.count,
        running=running,
        oldest_ready_s=ready.oldest_s,
        current=math.ceil(slots / query.capacity),
    )
    desired, reason = _remembered(_key(tenant, query), signals, query.policy(), store_now())
    return AutoscaleBody(
        desired=desired,
        current=signals.current,
        reason=reason,
        claimable=signals.claimable,
        running=signals.running,
        oldest_ready_s=signals.oldest_ready_s,
        evidence=reading.evidence,
    )


def _key(tenant: str | None, query: AutoscaleQuery) -> str:
    """Whose answers these are: those of one tenant, or all, under one policy."""
    return hashlib.sha256(f"{tenant or ''}\x00{query.model_dump_json()}".encode()).hexdigest()


def _remembered(key: str, signals: Signals, policy: Policy, now: datetime) -> tuple[int, Reason]:
    """Decide, and remember it for whichever web process is asked next. Two at once decide the same."""
    row = ScaleMemory.objects.filter(key=key).first()
    memory = None
    if row is not None and row.updated_at > now - FORGOTTEN_AFTER:
        asked = tuple((float(at), int(workers)) for at, workers in row.asked)
        memory = Memory(desired=row.desired, changed_at=row.changed_at.timestamp(), asked=asked)
    desired, reason, after = decide(signals, policy, memory, now.timestamp())
    values = {
        "desired": after.desired,
        "changed_at": datetime.fromtimestamp(after.changed_at, UTC),
        "asked": [list(one) for one in after.asked],
        "updated_at": now,
    }
    if row is not None:
        ScaleMemory.objects.filter(pk=row.pk).update(**values)
    else:
        ScaleMemory.objects.filter(updated_at__lt=now - FORGOTTEN_AFTER).delete()
        if ScaleMemory.objects.count() < MEMORIES:
            ScaleMemory.objects.update_or_create(key=key, defaults=values)
    return desired, reason
