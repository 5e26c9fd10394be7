"""What the settings say of tasks, for whoever must know it without loading django-tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from django.conf import settings

BACKEND = "dispatch.tasks.FleetBackend"
AGENT = "django-task"
DEFAULT_QUEUE = "default"


def backends() -> dict[str, Mapping[str, Any]]:
    """{alias: its settings} of the backends that are this fleet's."""
    configured: Mapping[str, Mapping[str, Any]] = getattr(settings, "TASKS", None) or {}
    return {alias: params for alias, params in configured.items() if params.get("BACKEND") == BACKEND}


def agent_of(queue: str) -> str:
    """The agent that runs a queue's tasks; a pool of workers serves it by this name."""
    return AGENT if queue == DEFAULT_QUEUE else f"{AGENT}.{queue}"


def agents() -> Iterator[str]:
    """Those of all queues of the configured backends."""
    queues = {queue for params in backends().values() for queue in params.get("QUEUES") or [DEFAULT_QUEUE]}
    return (agent_of(queue) for queue in sorted(queues))
