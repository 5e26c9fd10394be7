"""How long the turns that ended in a stretch of time had waited, and how long they ran."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from dispatch.models import WorkItem
from sessions_app.models import Turn

NEWEST = 2_000  # runs that are looked at: a minute may have many more


@dataclass(frozen=True, kw_only=True, slots=True)
class Latency:
    """Seconds; None where no such run ended.

    Waits are those of first runs: from the dispatch, or from the time that the turn was to start, until it did. So
    what a turn waits behind its session is counted, and what it waits for a person, or for its next try, is not.
    """

    wait_p50_s: float | None
    wait_p95_s: float | None
    run_p95_s: float | None


def latency(*, since: datetime, before: datetime) -> Latency:
    """Of the runs that ended in that time, the newest 2,000. Runs are written as they end, so those have high keys."""
    newest = Turn.objects.order_by("-pk").values_list("work_item_id", "epoch", "started_at", "finished_at")[:NEWEST]
    ended = [
        (item, epoch, start, end)
        for item, epoch, start, end in newest
        if start is not None and end is not None and since <= end < before
    ]
    ran = [(end - start).total_seconds() for _, _, start, end in ended]
    first = {item: start for item, epoch, start, _ in ended if epoch == 1}
    asked = WorkItem.objects.filter(pk__in=list(first)).values_list("pk", "created_at", "run_at")
    waited = [max(0.0, (first[pk] - (run_at or created)).total_seconds()) for pk, created, run_at in asked]
    return Latency(
        wait_p50_s=percentile(waited, 0.5), wait_p95_s=percentile(waited, 0.95), run_p95_s=percentile(ran, 0.95)
    )


def percentile(values: Sequence[float], share: float) -> float | None:
    """The smallest value that so many of them do not exceed (nearest rank); None of none."""
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else None
