"""`fleet.health.v1`: what was read, turned into a verdict. Pure: no clock, no database.

    healthy      every dependency was read and none is impaired
    degraded     every dependency was read, one at least is impaired
    partial      some were read, another could not be
    unavailable  none could be read

Only `healthy` is ready. No live worker and an empty queue are facts, not faults.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION: Literal["fleet.health.v1"] = "fleet.health.v1"
GOALS = "goal_rehydration"
CONTROL = "control_store"
REGISTRY = "worker_registry"
QUEUE = "dispatch_queue"
DEPENDENCIES = (GOALS, CONTROL, REGISTRY, QUEUE)

MAX_DIAGNOSTICS = 4
MAX_DIAGNOSTIC = 192  # characters
LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_:]{0,95}")  # a label of ours or the name of an exception's type

Status = Literal["healthy", "partial", "degraded", "unavailable"]
DependencyStatus = Literal["healthy", "degraded", "unavailable"]  # one read alone is never partial
Age = Annotated[float, Field(ge=0)]  # seconds
Diagnostics = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=MAX_DIAGNOSTIC)]], Field(max_length=MAX_DIAGNOSTICS)
]


class Dependency(BaseModel):
    """One authoritative read. Times are null until it has succeeded once in this process."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    status: DependencyStatus
    checked_at: datetime
    last_success_at: datetime | None
    freshness_seconds: Age | None
    diagnostics: Diagnostics


class Dependencies(BaseModel):
    """What the evidence rests on."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    goal_rehydration: Dependency
    control_store: Dependency
    worker_registry: Dependency
    dispatch_queue: Dependency


class Evidence(BaseModel):
    """The verdict. `last_success_at` is that of the dependency read longest ago: since then not all is known."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal["fleet.health.v1"]
    status: Status
    ready: bool
    autoscaling_ready: bool
    convergence_ready: bool
    generated_at: datetime
    last_success_at: datetime | None
    freshness_seconds: Age | None
    dependencies: Dependencies
    diagnostics: Diagnostics


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """How one read went. `error` is the name of the exception's type; `impairments` are labels of what is wrong."""

    checked_at: datetime
    last_success_at: datetime | None
    error: str | None = None
    impairments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # worth knowing, and no fault: they are shown and impair nothing


def verdict(facts: Mapping[str, Fact], *, now: datetime) -> Evidence:
    """Roll the facts up. A dependency without a fact is a KeyError, never a guess."""
    dependencies = {name: _dependency(facts[name], now) for name in DEPENDENCIES}
    status = _roll_up([dependency.status for dependency in dependencies.values()])
    successes = [fact.last_success_at for fact in (facts[name] for name in DEPENDENCIES)]
    known = [at for at in successes if at is not None]
    oldest = min(known) if len(known) == len(successes) else None
    healthy = status == "healthy"
    return Evidence(
        schema_version=SCHEMA_VERSION,
        status=status,
        ready=healthy,
        autoscaling_ready=healthy,
        convergence_ready=healthy,
        generated_at=now,
        last_success_at=oldest,
        freshness_seconds=_age(oldest, now),
        dependencies=Dependencies(**dependencies),
        diagnostics=_diagnostics(
            f"{name}: {line}" for name, dependency in dependencies.items() for line in dependency.diagnostics
        ),
    )


def _dependency(fact: Fact, now: datetime) -> Dependency:
    status: DependencyStatus = "healthy"
    if fact.error is not None:
        status = "unavailable"
    elif fact.impairments:
        status = "degraded"
    lines = (fact.error,) if fact.error is not None else fact.impairments + fact.notes
    return Dependency(
        status=status,
        checked_at=fact.checked_at,
        last_success_at=fact.last_success_at,
        freshness_seconds=_age(fact.last_success_at, now),
        diagnostics=_diagnostics(line if LABEL.fullmatch(line) else "unnamed" for line in lines),
    )


def _roll_up(statuses: Sequence[DependencyStatus]) -> Status:
    failed = statuses.count("unavailable")
    if failed == len(statuses):
        return "unavailable"
    if failed:
        return "partial"
    return "degraded" if "degraded" in statuses else "healthy"


def _age(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else round(max(0.0, (now - at).total_seconds()), 3)


def _diagnostics(lines: Iterable[str]) -> list[str]:
    return [line[:MAX_DIAGNOSTIC] for line in dict.fromkeys(lines)][:MAX_DIAGNOSTICS]
