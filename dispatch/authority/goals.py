"""Goals: what admission writes of one, and what the holder of its turn reads and commits, iteration by iteration."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F

from dispatch import states
from dispatch.authority.leases import fenced
from dispatch.clock import store_now
from dispatch.errors import LeaseLost
from dispatch.goal_ports import GoalRecord, IterationDone
from dispatch.models import KnownCheck, TurnCounter, WorkItem
from dispatch.ports import Lease
from dispatch.worker_ports import ANNOUNCE_S
from sessions_app import states as session_states
from sessions_app.models import Goal, GoalIteration, Session

COUNTER_SHARDS = 16  # goals that commit at once wait for each other's count no longer than they have to
ANNOUNCED = 2 * timedelta(seconds=ANNOUNCE_S)  # how long what a worker says of itself is believed
MAX_ITERATIONS = 10  # of a goal that names no number


class DatabaseGoalStore:
    """The GoalStore port on the state store."""

    def load(self, lease: Lease) -> GoalRecord:
        goal = Goal.objects.get(work_item_id=lease.item_id)
        return GoalRecord(
            objective=goal.objective,
            validation=goal.validation,
            constraints=goal.constraints,
            iteration=goal.iteration,
            max_iterations=goal.max_iterations,
            last_validation=goal.last_validation,
            last_result=goal.last_result,
            state=goal.state,
            passed=goal.passed,
            spent_s=goal.spent_s,
        )

    def is_check_known(self, lease: Lease, name: str) -> bool:
        return KnownCheck.objects.filter(name=name, last_seen__gte=store_now() - ANNOUNCED).exists()

    def commit(self, lease: Lease, done: IterationDone) -> bool:
        checkpoint = f"checkpoint-{secrets.token_hex(8)}"
        with fenced(lease) as now:
            moved = Goal.objects.filter(work_item_id=lease.item_id, iteration=done.iteration - 1).update(
                iteration=done.iteration,
                last_validation=done.validation,
                last_result=done.result,
                state=done.state,
                passed=done.passed,
                spent_s=F("spent_s") + done.seconds,
                updated_at=now,
            )
            if not moved:
                raise LeaseLost(job_id=lease.job_id)
            GoalIteration.objects.create(
                work_item_id=lease.item_id,
                iteration=done.iteration,
                epoch=lease.epoch,
                checkpoint_id=checkpoint,
                passed=done.passed,
                validation=done.validation,
                result_excerpt=done.excerpt,
                seconds=done.seconds,
                finished_at=now,
            )
            _count(states.ITERATIONS["passed" if done.passed else "not_passed"], lease.item_id % COUNTER_SHARDS)
            # what is lost from here on is lost since this checkpoint
            WorkItem.objects.filter(pk=lease.item_id).update(checkpoint_id=checkpoint, attempt=1)
            return Session.objects.filter(pk=lease.session_pk, desired=session_states.PAUSE).exists()


def _count(outcome: str, shard: int) -> None:
    """One more, in the caller's transaction."""
    counter = TurnCounter.objects.filter(outcome=outcome, shard=shard)
    if not counter.update(count=F("count") + 1):
        TurnCounter.objects.bulk_create([TurnCounter(outcome=outcome, shard=shard)], ignore_conflicts=True)
        counter.update(count=F("count") + 1)


def add_goal(
    goal: Mapping[str, Any], *, tenant: str, session_pk: int, item_id: int, job_id: str, now: datetime
) -> None:
    """Write the goal of a job that is admitted."""
    Goal.objects.create(
        tenant=tenant,
        session_id=session_pk,
        work_item_id=item_id,
        job_id=job_id,
        created_at=now,
        updated_at=now,
        **_definition(goal),
    )


def redefine(item_id: int, goal: Mapping[str, Any]) -> None:
    """Give a goal that has never run another definition."""
    Goal.objects.filter(work_item_id=item_id).update(**_definition(goal))


def reopen(item: WorkItem) -> None:
    """For a manual retry: the time is counted anew, and where no iteration is left there are as many again.

    Other turns of the session may have run since: the state that the last iteration left is not put over theirs.
    """
    more = _definition(item.goal or {})["max_iterations"]
    goal = Goal.objects.filter(work_item_id=item.pk)
    goal.update(spent_s=0.0, state=None)
    goal.filter(iteration__gte=F("max_iterations"), passed=False).update(max_iterations=F("max_iterations") + more)


def _definition(goal: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "objective": goal.get("objective") or "",
        "validation": goal.get("validation"),
        "constraints": goal.get("constraints"),
        "max_iterations": goal.get("max_iterations") or MAX_ITERATIONS,
    }
