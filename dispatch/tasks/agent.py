"""The built-in agent that runs tasks: one for each queue, so that pools of workers can serve some of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django_tasks import task_backends
from django_tasks.base import TaskContext, TaskResult
from django_tasks.exceptions import InvalidTaskError, TaskResultDoesNotExist
from django_tasks.signals import task_started
from django_tasks.utils import get_exception_traceback, get_module_path, normalize_json

from dispatch.agents import Discard, TurnContext
from dispatch.agents.registry import TASK, RegisteredAgent
from dispatch.connections import release_connections
from dispatch.task_names import agents
from dispatch.tasks.backend import FleetBackend
from dispatch.tasks.functions import task_at

MAX_TRACEBACK = 16 * 1024  # characters of its end


def task_agents() -> list[RegisteredAgent]:
    return [RegisteredAgent(name=name, fn=run_task, is_async=False, kind=TASK, max_attempts=1) for name in agents()]


def run_task(turn: TurnContext) -> Any:
    """Run the task that the job names; what it raises is noted with its traceback, and fails the attempt."""
    try:
        return _run(turn)
    finally:
        release_connections()  # those that the function opened in this thread


def _run(turn: TurnContext) -> Any:
    backend, result = _result_of(turn)
    task_started.send(type(backend), task_result=result)
    context = (TaskContext(task_result=result),) if result.task.takes_context else ()
    try:
        value = normalize_json(result.task.call(*context, *result.args, **result.kwargs))
    except Exception as error:
        _note(turn, error)
        raise
    return value


def _result_of(turn: TurnContext) -> tuple[FleetBackend, TaskResult[Any]]:
    """The backend that enqueued the job, and its task. Whoever else dispatched to this agent is refused."""
    payload: Mapping[str, Any] = turn.payload
    alias = payload.get("backend")
    backend = task_backends[alias] if isinstance(alias, str) and alias in task_backends.settings else None
    if not isinstance(backend, FleetBackend) or backend.tenant != turn.tenant:
        raise Discard("the job was enqueued by no task backend of this project")
    if not isinstance(payload.get("args"), list) or not isinstance(payload.get("kwargs"), dict):
        raise Discard("the job has no arguments of a task")
    try:
        task_at(turn.task, backend.alias)
        return backend, backend.get_result(turn.job_id)
    except InvalidTaskError as error:
        raise Discard(str(error)) from error
    except TaskResultDoesNotExist as error:
        raise Discard("the job is no task of this backend") from error


def _note(turn: TurnContext, error: Exception) -> None:
    kept = turn.last_checkpoint if isinstance(turn.last_checkpoint, dict) else {}
    said = {"class": get_module_path(type(error)), "traceback": get_exception_traceback(error)[-MAX_TRACEBACK:]}
    turn.checkpoint({**kept, "errors": [*kept.get("errors", []), said]})
