"""The fleet's answers for people at a terminal. What could not be read is "unknown", never 0."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dispatch.management.tables import moment, table
from fleet.console.labels import duration
from fleet.health import Evidence
from fleet.topology import HealthBody, TopologyBody, WorkerRow

UNKNOWN = "unknown"
MAX_NAMED = 50  # sessions told one by one


def _parts(*parts: str) -> str:
    return "\n\n".join(parts)


def evidence(told: Evidence) -> str:
    rows = [
        (name, one.status, _ago(one.freshness_seconds), ", ".join(one.diagnostics)) for name, one in told.dependencies
    ]
    return _parts(
        f"evidence is {told.status}; {'ready' if told.ready else 'NOT READY'}",
        table(("DEPENDENCY", "STATUS", "READ", "DIAGNOSTICS"), rows, cut=None),
    )


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{duration(seconds)} ago"


def health(body: HealthBody) -> str:
    sessions = UNKNOWN
    if body.sessions is not None:
        held = ", ".join(f"{count:,} {status}" for status, count in body.sessions.by_status.items() if count)
        sessions = f"{body.sessions.total:,}" + (f" ({held})" if held else "")
    goals = UNKNOWN if body.goals is None else f"{body.goals.active:,} active of {body.goals.tracked:,}"
    domains = UNKNOWN
    if body.domains is not None:
        domains = table(
            ("DOMAIN", "SESSIONS", "ACTIVE", "ERRORED", "ERROR RATE"),
            [(name, d.total, d.active, d.errored, f"{d.error_rate:.1%}") for name, d in body.domains.items()],
        )
    return _parts(
        evidence(body.evidence),
        f"sessions: {sessions}\ngoals: {goals}",
        domains if body.domains is not None else f"domains: {domains}",
        workers(body.dispatch_workers),
    )


def topology(body: TopologyBody) -> str:
    sessions = "sessions: unknown"
    if body.domains is not None:
        sessions = table(
            ("DOMAIN", "SESSION", "STATUS", "UPDATED"),
            [
                (group.domain, one.id, one.status, one.updated_at.strftime("%Y-%m-%d %H:%M:%S"))
                for group in body.domains
                for one in group.sessions
            ],
        )
    goals = "goals: unknown"
    if body.goals is not None:
        goals = table(
            ("GOAL", "STATUS", "ITERATION", "OBJECTIVE"),
            [(g.job_id, g.status, f"{g.iteration} of {g.max_iterations}", g.objective) for g in body.goals],
        )
    totals, page = body.totals, body.page
    first = page.offset + 1 if page.returned else 0
    last = UNKNOWN if page.returned is None else f"{page.offset + page.returned:,}"
    return _parts(
        evidence(body.evidence),
        sessions,
        f"sessions {first:,} to {last} of {_count(totals.sessions)}, in {_count(totals.domains)} domains",
        *([goals] if body.goals is None or body.goals else []),
        workers(body.dispatch_workers),
    )


def _count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def workers(rows: Sequence[WorkerRow] | None) -> str:
    if rows is None:
        return "workers: unknown"
    if not rows:
        return "no live worker"
    now = time.time()
    return table(
        ("WORKER", "SLOTS", "BEAT", "RUNS SESSIONS"),
        [
            (
                row.worker_id,
                f"{len(row.active_sessions)} of {row.capacity}",
                f"{duration(now - row.last_heartbeat)} ago",
                ", ".join(row.active_sessions),
            )
            for row in rows
        ],
    )


def gates(body: dict[str, Any]) -> str:
    if not body["gates"]:
        return "claiming is not paused"
    rows = [(gate["scope"], gate["name"], gate["by"], moment(gate["at"]), gate["reason"]) for gate in body["gates"]]
    return table(("SCOPE", "NAME", "BY", "SINCE", "REASON"), rows, cut=None)


def limits(told: Sequence[dict[str, Any]]) -> str:
    if not told:
        return "nothing is limited"
    return table(
        ("SCOPE", "NAME", "AT ONCE", "PER SECOND", "BURST", "BY", "SINCE", "REASON"),
        [
            (
                one["scope"],
                one["name"],
                one["max_running"],
                one["rate_per_s"],
                one["burst"],
                one["by"],
                moment(one["at"]),
                one["reason"],
            )
            for one in told
        ],
        cut=None,
    )


def steered(verb: str, body: dict[str, Any]) -> str:
    """The counts, and each session while they are few; --json lists them all."""
    results = body["results"]
    if not results:
        return f"{verb}: no session matches"
    counts = ", ".join(f"{count:,} {outcome.replace('_', ' ')}" for outcome, count in body["counts"].items())
    if len(results) > MAX_NAMED:
        return f"{verb}: {counts}; --json tells of each session"
    return _parts(
        f"{verb}: {counts}", table(("SESSION", "OUTCOME"), [(r["session_id"], r["outcome"]) for r in results])
    )
