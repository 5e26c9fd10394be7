"""The backend: a task that is enqueued is a job, and a job is a task's result."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from django.core import checks
from django_tasks.backends.base import BaseTaskBackend
from django_tasks.base import Task, TaskError, TaskResult, TaskResultStatus
from django_tasks.exceptions import TaskResultDoesNotExist
from django_tasks.signals import task_enqueued
from django_tasks.utils import normalize_json

from dispatch import selectors, services, states
from dispatch.access import Caller
from dispatch.clock import rfc3339
from dispatch.envelope import is_job_id, is_name
from dispatch.errors import JobNotFound
from dispatch.models import Outcome, WorkItem, WorkItemEvent
from dispatch.specs import DispatchSpec
from dispatch.task_names import AGENT, agent_of
from dispatch.tasks.functions import task_at

OPTIONS = ("tenant", "max_attempts")
_QUEUE = re.compile(r"[A-Za-z0-9._-]{1,100}")
_STATUS = {
    states.RUNNING: TaskResultStatus.RUNNING,
    states.SUCCEEDED: TaskResultStatus.SUCCESSFUL,
    states.FAILED: TaskResultStatus.FAILED,
    states.CANCELLED: TaskResultStatus.FAILED,
    states.DEAD_LETTER: TaskResultStatus.FAILED,
}


class TaskJobEnded(Exception):
    """The task's job ended without its function having raised: cancelled, expired, or its worker died."""


class FleetBackend(BaseTaskBackend):
    """OPTIONS: `tenant` (needed), whose jobs the tasks are; `max_attempts` (1), how often one may run in all."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def tenant(self) -> str:
        return str(self.options.get("tenant", ""))

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        where = f"TASKS[{self.alias!r}]"
        attempts = self.options.get("max_attempts", 1)
        if not is_name(self.tenant):
            yield _error(
                f"{where}['OPTIONS']['tenant'] is not the name of a tenant.", "E001", "Say whose jobs they are."
            )
        if isinstance(attempts, bool) or not isinstance(attempts, int) or not 1 <= attempts <= 100:
            yield _error(f"{where}['OPTIONS']['max_attempts'] is not a whole number from 1 to 100.", "E002", None)
        if unknown := sorted(set(self.options) - set(OPTIONS)):
            yield _error(f"{where}['OPTIONS'] has unknown keys: {', '.join(unknown)}.", "E003", f"Known: {OPTIONS}.")
        if wrong := sorted(name for name in self.queues if not _QUEUE.fullmatch(name)):
            yield _error(
                f"{where}['QUEUES'] has names that no agent can have: {', '.join(wrong)}.",
                "E004",
                "Use 1 to 100 letters, digits, dots, dashes and underscores.",
            )

    # -- in ------------------------------------------------------------------------------------------------------------
    def enqueue(self, task: Task[Any, Any], args: Any, kwargs: Any) -> TaskResult[Any]:
        """Dispatch the task's job; inside a transaction it is there once that commits.

        Raises InvalidTaskError, TypeError for arguments that are no JSON, and the refusals of a dispatch.
        """
        self.validate_task(task)
        body: dict[str, Any] = {
            "task": task.module_path,
            "agent_name": agent_of(task.queue_name),
            "payload": {
                "backend": self.alias,
                "args": normalize_json(list(args)),
                "kwargs": normalize_json(dict(kwargs)),
                "priority": task.priority,
                "queue_name": task.queue_name,
            },
            "priority": priority_of(task.priority),
            "max_attempts": self.options.get("max_attempts", 1),
        }
        if task.run_after is not None:
            body["run_at"] = rfc3339(task.run_after)
        done = services.job_dispatch(caller=self._caller(), spec=DispatchSpec.parse(body))
        result = self.get_result(done.handle["job_id"])
        task_enqueued.send(type(self), task_result=result)
        return result

    def _caller(self) -> Caller:
        scopes = frozenset({"read", "dispatch"})
        return Caller(tenant=self.tenant, name="django.tasks", kind="system", scopes=scopes)

    # -- out -----------------------------------------------------------------------------------------------------------
    def get_result(self, result_id: str) -> TaskResult[Any]:
        """What became of it. Raises TaskResultDoesNotExist, also for a job that is no task of this backend."""
        try:
            item = selectors.find_job(self._caller(), result_id) if is_job_id(result_id) else None
        except JobNotFound:
            item = None
        payload = item.payload if item is not None else {}
        if item is None or not _is_of_tasks(item) or payload.get("backend") != self.alias:
            raise TaskResultDoesNotExist(result_id)
        task = task_at(item.task, self.alias).using(
            priority=payload.get("priority", 0), queue_name=payload.get("queue_name"), run_after=item.run_at
        )
        return self._result(item, task, payload)

    def _result(self, item: WorkItem, task: Task[Any, Any], payload: Mapping[str, Any]) -> TaskResult[Any]:
        starts = list(
            WorkItemEvent.objects.filter(work_item=item, to_status=states.RUNNING)
            .order_by("id")
            .values_list("at", "worker")
        )
        outcome = Outcome.objects.filter(work_item=item, epoch=item.epoch).first() if item.finished_at else None
        result: TaskResult[Any] = TaskResult(
            task=task,
            id=item.job_id,
            status=_STATUS.get(item.status, TaskResultStatus.READY),
            enqueued_at=item.created_at,
            started_at=starts[0][0] if starts else None,
            last_attempted_at=starts[-1][0] if starts else None,
            finished_at=item.finished_at,
            args=payload.get("args", []),
            kwargs=payload.get("kwargs", {}),
            backend=self.alias,
            errors=_errors(item, outcome),
            worker_ids=[worker[:8] for _, worker in starts],
        )
        if outcome is not None and outcome.status == states.SUCCEEDED:
            object.__setattr__(result, "_return_value", outcome.result)  # as the framework's own backends set it
        return result


def _errors(item: WorkItem, outcome: Outcome | None) -> list[TaskError]:
    """What its runs raised, as they noted it; how the job ended, when nothing of them says so."""
    noted = item.checkpoint.get("errors", []) if isinstance(item.checkpoint, dict) else []
    errors = [TaskError(exception_class_path=one["class"], traceback=one["traceback"]) for one in noted]
    if outcome is None or outcome.status == states.SUCCEEDED:
        return errors
    if not errors or outcome.error_code != states.ErrorCode.AGENT_ERROR:
        said = f"{outcome.error_code}: {outcome.error_message}"
        errors.append(TaskError(exception_class_path=f"{__name__}.{TaskJobEnded.__qualname__}", traceback=said))
    return errors


def _is_of_tasks(item: WorkItem) -> bool:
    return item.agent_name == AGENT or item.agent_name.startswith(f"{AGENT}.")


def priority_of(number: int) -> str:
    """The four of the fleet: 50 and more is critical, more than 0 high, 0 normal, less low."""
    if number >= 50:
        return "critical"
    return "high" if number > 0 else "low" if number < 0 else "normal"


def _error(message: str, number: str, hint: str | None) -> checks.CheckMessage:
    return checks.Error(message, hint=hint, id=f"dispatch_tasks.{number}")
