"""Addresses of the console's pages that stand for no model; those of models are the admin's own."""

from __future__ import annotations

from django.urls import path

from fleet.console.health import health_view
from fleet.console.queue import queue_view
from fleet.console.tasks import task_view

app_name = "console"

urlpatterns = [
    path("queue/", queue_view, name="queue"),
    path("health/", health_view, name="health"),
    path("dispatch-task/", task_view, name="task"),
]
