"""Addresses of the dispatch API."""

from __future__ import annotations

from django.urls import path

from dispatch.api.controls import KillView, PauseView, ResumeView
from dispatch.api.gates import GatesView, OpenGateView, ShutGateView
from dispatch.api.jobs import JobStreamView, JobsView, JobView
from dispatch.api.limits import ClearLimitView, LimitsView, SetLimitView
from dispatch.api.sessions import SessionReplyView, SessionsView, SessionTurnsView, SessionView

urlpatterns = [
    path("api/graph/jobs", JobsView.as_view(), name="jobs"),
    path("api/graph/jobs/<str:job_id>", JobView.as_view(), name="job"),
    path("api/graph/jobs/<str:job_id>/stream", JobStreamView.as_view(), name="job-stream"),
    path("api/sessions", SessionsView.as_view(), name="sessions"),
    path("api/sessions/<str:session_id>", SessionView.as_view(), name="session"),
    path("api/sessions/<str:session_id>/turns", SessionTurnsView.as_view(), name="session-turns"),
    path("api/sessions/<str:session_id>/reply", SessionReplyView.as_view(), name="session-reply"),
    path("api/fleet/pause", PauseView.as_view(), name="fleet-pause"),
    path("api/fleet/resume", ResumeView.as_view(), name="fleet-resume"),
    path("api/fleet/kill", KillView.as_view(), name="fleet-kill"),
    path("api/fleet/gates", GatesView.as_view(), name="fleet-gates"),
    path("api/fleet/gates/shut", ShutGateView.as_view(), name="fleet-gates-shut"),
    path("api/fleet/gates/open", OpenGateView.as_view(), name="fleet-gates-open"),
    path("api/fleet/limits", LimitsView.as_view(), name="fleet-limits"),
    path("api/fleet/limits/set", SetLimitView.as_view(), name="fleet-limits-set"),
    path("api/fleet/limits/clear", ClearLimitView.as_view(), name="fleet-limits-clear"),
]
