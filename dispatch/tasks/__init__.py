"""Django tasks on this fleet, by the backend `dispatch.tasks.FleetBackend`. Needs django-tasks."""

from dispatch.tasks.backend import FleetBackend, TaskJobEnded

__all__ = ["FleetBackend", "TaskJobEnded"]
