"""Pages of the console that stand for no model: who may open them, and the frame around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from fleet.console.roles import Staff, staff_of

View = Callable[..., HttpResponse]


def for_staff(may: Callable[[Staff], bool]) -> Callable[[View], View]:
    """Send who is not signed in to the sign-in, and refuse who may not."""

    def guarded(view: View) -> View:
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if not may(staff_of(request)):
                raise PermissionDenied
            return view(request, *args, **kwargs)

        return admin.site.admin_view(checked)

    return guarded


def framed(request: HttpRequest, template: str, title: str, page: Any) -> HttpResponse:
    context = {**admin.site.each_context(request), "title": title, "page": page}
    return TemplateResponse(request, template, context)
