"""Lengths of time, and who wanted what when and why, in the words that explain, console and command line share."""

from __future__ import annotations

from datetime import datetime, timedelta

from dispatch.models import ClaimGate


def span(delta: timedelta) -> str:
    """In one unit: 90 s, 5 min, 3 h."""
    seconds = max(0, round(delta.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


def who_when_why(by: str, at: datetime | None, reason: str, now: datetime) -> str:
    """The end of a sentence: " by ops 3 min ago: deploy", without what nobody said."""
    who = f" by {by}" if by else ""
    when = f" {span(now - at)} ago" if at is not None else ""
    return f"{who}{when}: {reason}" if reason else f"{who}{when}"


def gate_words(gate: ClaimGate, now: datetime) -> str:
    """What a gate shuts, by whom, since when and why."""
    what = "the whole fleet" if gate.scope == "fleet" else f"{gate.scope} {gate.name}"
    return f"claiming is paused for {what}{who_when_why(gate.set_by, gate.set_at, gate.reason, now)}"
