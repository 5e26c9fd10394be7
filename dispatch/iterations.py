"""The read of a goal's iterations."""

from __future__ import annotations

from typing import Any

from dispatch.access import Caller
from dispatch.clock import rfc3339
from dispatch.paging import decode_cursor, encode_cursor
from dispatch.selectors import find_job, page_of
from sessions_app.models import GoalIteration


def job_iterations(*, caller: Caller, job_id: str, limit: int = 100, cursor: str | None = None) -> dict[str, Any]:
    """The committed iterations of a goal, oldest first, by keyset; none for a job without one."""
    item = find_job(caller, job_id)
    rows = GoalIteration.objects.filter(work_item_id=item.pk).order_by("iteration")
    after = decode_cursor("iteration", cursor)
    if after is not None:
        rows = rows.filter(iteration__gt=after)
    page, following = page_of(rows, limit)
    iterations = [
        {
            "iteration": row.iteration,
            "passed": row.passed,
            "validation": row.validation,
            "result_excerpt": row.result_excerpt,
            "seconds": row.seconds,
            "checkpoint_id": row.checkpoint_id,
            "finished_at": rfc3339(row.finished_at),
        }
        for row in page
    ]
    cursor = encode_cursor("iteration", page[-1].iteration) if following else None
    return {"job_id": item.job_id, "iterations": iterations, "next_cursor": cursor}
