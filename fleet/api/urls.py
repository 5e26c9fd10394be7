"""Addresses of the fleet API and of the probes."""

from __future__ import annotations

from django.urls import path

from fleet.api.schedules import (
    SchedulePauseView,
    ScheduleResumeView,
    ScheduleRunView,
    SchedulesView,
    ScheduleView,
)
from fleet.api.views import AliveView, AutoscaleView, DrainView, HealthView, MetricsView, ReadyView, TopologyView

urlpatterns = [
    path("api/fleet/health", HealthView.as_view(), name="fleet-health"),
    path("api/fleet/topology", TopologyView.as_view(), name="fleet-topology"),
    path("api/fleet/autoscale", AutoscaleView.as_view(), name="fleet-autoscale"),
    path("api/fleet/workers/<str:worker_id>/drain", DrainView.as_view(), name="fleet-worker-drain"),
    path("api/fleet/schedules", SchedulesView.as_view(), name="schedules"),
    path("api/fleet/schedules/<str:name>", ScheduleView.as_view(), name="schedule"),
    path("api/fleet/schedules/<str:name>/run", ScheduleRunView.as_view(), name="schedule-run"),
    path("api/fleet/schedules/<str:name>/pause", SchedulePauseView.as_view(), name="schedule-pause"),
    path("api/fleet/schedules/<str:name>/resume", ScheduleResumeView.as_view(), name="schedule-resume"),
    path("healthz", AliveView.as_view(), name="healthz"),
    path("readyz", ReadyView.as_view(), name="readyz"),
    path("metrics", MetricsView.as_view(), name="metrics"),
]
