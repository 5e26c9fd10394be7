"""How far goals are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dispatch import states
from dispatch.models import WorkItem
from sessions_app import states as session_states
from sessions_app.models import Goal, Session


def goals_of(items: Sequence[WorkItem]) -> dict[int, dict[str, Any]]:
    """{item id: how far its goal is}, of those that have one."""
    ids = [item.pk for item in items if item.kind == states.GOAL_LOOP]
    fields = ("objective", "iteration", "max_iterations", "last_validation")
    rows = Goal.objects.filter(work_item_id__in=ids).values("work_item_id", *fields) if ids else []
    return {row["work_item_id"]: {field: row[field] for field in fields} for row in rows}


def iteration_words(item: WorkItem) -> str:
    """`, iteration 3 of 10` of a goal that runs; nothing for other jobs."""
    if item.kind != states.GOAL_LOOP:
        return ""
    goal = Goal.objects.filter(work_item_id=item.pk).values_list("iteration", "max_iterations").first()
    if goal is None:
        return ""
    pausing = Session.objects.filter(pk=item.session_id, desired=session_states.PAUSE).exists()
    then = ", which is its last before the pause of its session" if pausing else ""
    return f", iteration {min(goal[0] + 1, goal[1])} of {goal[1]}{then}"
