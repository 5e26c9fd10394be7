"""The page that is shown to whom the sign-in is closed."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

TOO_MANY = 429


def locked_out(request: HttpRequest, *given: Any) -> HttpResponse:
    """Answer 429 and say for how long; the Retry-After is that time in seconds. Called by django-axes."""
    closed = settings.AXES_COOLOFF_TIME
    told = {
        **admin.site.each_context(request),
        "title": "Too many tries",
        "tries": settings.AXES_FAILURE_LIMIT,
        "minutes": int(closed.total_seconds() // 60),
    }
    answer = render(request, "fleet/locked_out.html", told, status=TOO_MANY)
    answer["Retry-After"] = str(int(closed.total_seconds()))
    return answer
