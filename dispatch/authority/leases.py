"""What a holder does with its lease while the turn runs: renew, look for a stop, keep steps, checkpoints and output.

Every write here is fenced by (item, epoch, owner) under the item's row lock, so that a takeover cannot slip in between
the look and the write.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models.functions import Coalesce

from dispatch import states
from dispatch.authority import spending
from dispatch.clock import store_now
from dispatch.errors import LeaseLost
from dispatch.models import Outcome, OutputChunk, Question, StepResult, WorkItem
from dispatch.ports import Fence, Lease, RenewResult
from dispatch.spending import Budget, ModelSpend
from sessions_app.models import GoalIteration, Session, Turn


class Leases:
    """Renewal and stop requests, for all leases of a process in one statement."""

    def renew(self, *, ttl_s: float, leases: Sequence[Fence]) -> RenewResult:
        """Prolong the leases. A row that another transaction holds is renewed next time; one not ours is lost."""
        fences = {fence[0]: fence for fence in leases}
        with transaction.atomic():
            now = store_now()
            held = WorkItem.objects.select_for_update(skip_locked=True, no_key=True).filter(pk__in=list(fences))
            mine = [fence[0] for fence in held.values_list("pk", "epoch", "owner") if fence == fences[fence[0]]]
            WorkItem.objects.filter(pk__in=mine).update(lease_expires_at=now + timedelta(seconds=ttl_s))
        return self.cancels(leases=leases)

    def cancels(self, *, leases: Sequence[Fence]) -> RenewResult:
        """Which of the leases are lost, and which turns somebody asked to stop. Marks what is wished as seen."""
        fences = {fence[0]: fence for fence in leases}
        rows = WorkItem.objects.filter(pk__in=list(fences)).values_list(
            "pk",
            "epoch",
            "owner",
            "cancel_requested_at",
            "cancel_code",
            "cancel_seen_at",
            "session_id",
            "session__desired",
            "session__seen_at",
        )
        mine = {row[0]: row for row in rows if row[:3] == fences[row[0]]}
        asked = {pk: row[4] or states.ErrorCode.CANCELLED for pk, row in mine.items() if row[3] is not None}
        for pk, (_, epoch, owner, _, _, cancel_seen, session, desired, wish_seen) in mine.items():
            if pk in asked and cancel_seen is None:
                WorkItem.objects.filter(pk=pk, epoch=epoch, owner=owner).update(
                    cancel_seen_at=Coalesce("cancel_seen_at", store_now())
                )
            # a pause is seen while its last turn runs on; a kill with the turn that it reaches
            if wish_seen is None and (desired == "pause" or (desired == "kill" and pk in asked)):
                wished = Session.objects.filter(pk=session, desired=desired, seen_at=None)
                wished.update(seen_at=store_now(), seen_by=owner)
        return RenewResult(lost=[pk for pk in fences if pk not in mine], cancelled=asked)

    def stopped(self, *, lease: Lease) -> None:
        """Note that a run that was settled without has really ended, and with it what its session was asked."""
        now = store_now()
        ended = WorkItem.objects.filter(pk=lease.item_id, epoch=lease.epoch, finished_at__isnull=False)
        ended.update(stopped_at=Coalesce("stopped_at", now))
        waiting = Session.objects.filter(pk=lease.session_pk, seen_by=lease.owner, stopped_at=None)
        waiting.exclude(status__in=("pause_requested", "kill_requested")).update(stopped_at=now)  # another turn runs


@contextmanager
def fenced(lease: Lease) -> Iterator[datetime]:
    """Hold the item's row while its holder writes; raises LeaseLost when it is not the holder any more."""
    with transaction.atomic():
        held = WorkItem.objects.select_for_update(no_key=True).filter(
            pk=lease.item_id, epoch=lease.epoch, owner=lease.owner
        )
        if not held.values_list("pk", flat=True).first():
            raise LeaseLost(job_id=lease.job_id)
        yield store_now()


class DatabaseTurnStore:
    """The TurnStore port on the state store; callers release() after each call, so no pooled connection is kept."""

    def __init__(self, *, ttl_s: float, dispatch_child: Callable[[Lease, str, dict[str, Any]], str]) -> None:
        self._ttl_s = ttl_s
        self._dispatch_child = dispatch_child

    def history(self, lease: Lease) -> list[dict[str, Any]]:
        numbers = dict(
            Turn.objects.filter(
                session_id=lease.session_pk, turn_number__lt=lease.turn_number, status=states.SUCCEEDED
            ).values_list("work_item_id", "turn_number")
        )
        items = {
            pk: (job, agent, task, epoch)
            for pk, job, agent, task, epoch in WorkItem.objects.filter(pk__in=list(numbers)).values_list(
                "pk", "job_id", "agent_name", "task", "epoch"
            )
        }
        results = {
            (pk, epoch): result
            for pk, epoch, result in Outcome.objects.filter(work_item_id__in=list(items)).values_list(
                "work_item_id", "epoch", "result"
            )
        }
        return [
            {
                "turn_number": number,
                "job_id": items[pk][0],
                "agent_name": items[pk][1],
                "task": items[pk][2],
                "result": results.get((pk, items[pk][3])),
            }
            for pk, number in sorted(numbers.items(), key=lambda pair: pair[1])
            if pk in items
        ]

    def checkpoint(self, lease: Lease, value: Any) -> None:
        with fenced(lease):
            WorkItem.objects.filter(pk=lease.item_id).update(
                checkpoint=value, checkpoint_id=f"checkpoint-{secrets.token_hex(8)}"
            )

    def step_load(self, lease: Lease, name: str) -> tuple[bool, Any]:
        with fenced(lease) as now:
            WorkItem.objects.filter(pk=lease.item_id).update(lease_expires_at=now + timedelta(seconds=self._ttl_s))
            stored = StepResult.objects.filter(work_item_id=lease.item_id, name=name).values_list("result").first()
        return (True, stored[0]) if stored else (False, None)

    def step_save(self, lease: Lease, name: str, result: Any) -> Any:
        with fenced(lease) as now:
            step, _ = StepResult.objects.get_or_create(
                work_item_id=lease.item_id,
                name=name,
                defaults={"result": result, "epoch": lease.epoch, "created_at": now},
            )
            return step.result

    def emit(self, lease: Lease, kind: str, data: dict[str, Any]) -> None:
        with fenced(lease) as now:
            OutputChunk.objects.create(work_item_id=lease.item_id, epoch=lease.epoch, kind=kind, data=data, at=now)

    def reply(self, lease: Lease) -> str | None:
        answered = Question.objects.filter(work_item_id=lease.item_id, answered_at__isnull=False)
        if lease.kind == states.GOAL_LOOP:  # a question ends its run, so an earlier iteration's is of an earlier epoch
            answered = answered.filter(epoch__gte=self._iteration_began(lease))
        return answered.order_by("-epoch").values_list("answer", flat=True).first()

    @staticmethod
    def _iteration_began(lease: Lease) -> int:
        """The epoch in which the iteration before the present one was committed."""
        committed = GoalIteration.objects.filter(work_item_id=lease.item_id).order_by("-iteration")
        return committed.values_list("epoch", flat=True).first() or 0

    def children(self, lease: Lease) -> list[dict[str, Any]]:
        items = list(
            WorkItem.objects.filter(parent_item_id=lease.item_id)
            .order_by("pk")
            .values_list("pk", "job_id", "status", "epoch", "session__session_id")
        )
        outcomes = {
            (row.work_item_id, row.epoch): row
            for row in Outcome.objects.filter(work_item_id__in=[pk for pk, *_ in items])
        }
        found = []
        for pk, job_id, status, epoch, session_id in items:
            outcome = outcomes.get((pk, epoch))
            error = None
            if outcome is not None and outcome.error_code:
                error = {"code": outcome.error_code, "message": outcome.error_message}
            found.append(
                {
                    "job_id": job_id,
                    "session_id": session_id,
                    "status": states.public_status(status),
                    "result": outcome.result if outcome else None,
                    "error": error,
                }
            )
        return found

    def dispatch_child(self, lease: Lease, job_key: str, body: dict[str, Any]) -> str:
        return self._dispatch_child(lease, job_key, body)

    def model_begins(self, lease: Lease, model: str, budget: Budget) -> tuple[str, int, int] | None:
        with fenced(lease):
            return spending.request_begins(lease, model, budget)

    def model_ended(self, lease: Lease, model: str, spend: ModelSpend) -> None:
        with fenced(lease):
            spending.request_ended(lease, model, spend)

    def release(self) -> None:
        if connection.vendor == "postgresql" and not connection.in_atomic_block:
            connection.close()
