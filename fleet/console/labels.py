"""States in the console's words: what they are called and which colour they have. A colour never stands alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

GOOD = "success"
WARN = "warning"
BAD = "danger"
CALM = "info"
QUIET = "default"

VARIANTS = {
    "healthy": GOOD,
    "partial": WARN,
    "degraded": WARN,
    "unavailable": BAD,
    "submitted": CALM,
    "ready": CALM,
    "leased": CALM,
    "running": GOOD,
    "suspended": WARN,
    "succeeded": QUIET,
    "failed": BAD,
    "cancelled": QUIET,
    "dead letter": BAD,
    "active": GOOD,
    "idle": QUIET,
    "needs input": WARN,
    "pause requested": WARN,
    "paused": WARN,
    "kill requested": BAD,
    "live": GOOD,
    "late": WARN,
    "draining": CALM,
    "on": GOOD,
    "off": QUIET,
    "refused": BAD,
    "pending": CALM,
    "queued": GOOD,
    "manual": CALM,
    "coalesced": QUIET,
    "skipped": WARN,
    "missed": WARN,
    "applied": GOOD,
    "requested": WARN,
    "done": GOOD,
    "already": QUIET,
    "too late": QUIET,
    "changed": WARN,
    "gone": QUIET,
    "not found": QUIET,
    "not retryable": QUIET,
    "queue full": BAD,
    "interrupted": BAD,
    "delivered": QUIET,
    "dead": BAD,
    "open": GOOD,
    "unknown": WARN,
    "behind a turn": QUIET,
    "not yet due": CALM,
    "session paused": WARN,
    "waits for jobs": CALM,
    "waits for an answer": WARN,
    "waits for child jobs": CALM,
    "on time": GOOD,
    "leads": GOOD,
    "silent": WARN,
    "revoked": QUIET,
    "expired": QUIET,
}

ICONS = {
    "healthy": "check_circle",
    "partial": "rule",
    "degraded": "warning",
    "unavailable": "error",
}


@dataclass(frozen=True, slots=True)
class Label:
    word: str
    variant: str
    icon: str = ""


def label(state: str) -> Label:
    word = state.replace("_", " ")
    return Label(word, VARIANTS.get(word, QUIET), ICONS.get(word, ""))


def counted(count: int, noun: str) -> str:
    """1 turn, 2,000 turns."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def ago(at: datetime, now: datetime) -> str:
    return f"{duration((now - at).total_seconds())} ago"


def fine_duration(seconds: float) -> str:
    """As `duration`, and below ten seconds exact enough for a wait: 4 ms, 0.35 s, 2.5 s."""
    if seconds >= 9.95:
        return duration(seconds)
    if seconds >= 0.995:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    return f"{seconds:.2f} s" if seconds >= 0.0995 else f"{round(seconds * 1000)} ms"


def duration(seconds: float) -> str:
    """A length of time in one unit: 9 s, 4 min, 3 h, 2 d."""
    for limit, size, unit in ((90, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{max(0, round(seconds / size))} {unit}"
    return f"{round(seconds / 86400)} d"
