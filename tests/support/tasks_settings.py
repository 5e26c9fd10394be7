"""A project of a user's own: the product's settings, an app with tasks, and backends on the fleet."""

from __future__ import annotations

from fleetsite.settings import *  # noqa: F403
from fleetsite.settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [*_APPS, "django_tasks", "tests.support"]
_FLEET = "dispatch.tasks.FleetBackend"
TASKS = {
    "default": {"BACKEND": _FLEET, "QUEUES": ["default", "slow"], "OPTIONS": {"tenant": "t1"}},
    "stubborn": {"BACKEND": _FLEET, "OPTIONS": {"tenant": "t1", "max_attempts": 2}},
    "elsewhere": {"BACKEND": "django_tasks.backends.dummy.DummyBackend"},
}
