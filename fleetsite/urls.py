"""Every address of the site. The API's own urlconfs carry full paths from the root."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from fleetsite.api_docs import SchemaView, docs_view

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", include("fleet.console.urls")),  # before the admin's own, which end in a page for all else
    path("admin/", admin.site.urls),
    path("", include("dispatch.api.urls")),
    path("", include("fleet.api.urls")),
    path("api/schema", SchemaView.as_view(), name="schema"),
    path("api/docs", docs_view, name="docs"),
]

handler400 = "fleetsite.api_errors.handler400"
handler403 = "fleetsite.api_errors.handler403"
handler404 = "fleetsite.api_errors.handler404"
handler500 = "fleetsite.api_errors.handler500"
