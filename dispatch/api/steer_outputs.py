"""What pauses, limits and steering answer, as the OpenAPI document shows it. Times are RFC 3339 in UTC."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dispatch.api.outputs import Output


class Gate(Output):
    """A pause of claiming: what it stops, who set it, when and why. `name` is null for the whole fleet."""

    scope: Literal["fleet", "kind", "agent", "tenant"]
    name: str | None
    reason: str
    by: str
    at: str


class Gates(Output):
    """What is shut, as far as it concerns the caller."""

    gates: list[Gate]


class GateAnswer(Output):
    """What came of it; `gate` is the pause as it stands, null when there is none."""

    scope: Literal["fleet", "kind", "agent", "tenant"]
    name: str | None
    outcome: Literal["applied", "already"]
    gate: Gate | None


class Limit(Output):
    """A limit over all workers: turns at once, starts in a second; who set it, when and why."""

    scope: Literal["agent", "tenant"]
    name: str
    max_running: int | None
    rate_per_s: float | None
    burst: int | None = Field(description="how many may start at once after a rest")
    reason: str
    by: str
    at: str


class Limits(Output):
    """The limits, as far as they concern the caller."""

    limits: list[Limit]


class LimitAnswer(Output):
    """What came of it; `limit` is the limit as it stands, null when there is none."""

    scope: Literal["agent", "tenant"]
    name: str
    outcome: Literal["applied", "already"]
    limit: Limit | None


class SteerResult(Output):
    """What happened to one session."""

    session_id: str
    outcome: Literal["applied", "requested", "already", "not_found"]


class SteerAnswer(Output):
    """What happened to each session chosen, and how often."""

    results: list[SteerResult]
    counts: dict[str, int]
