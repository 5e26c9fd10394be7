"""Unfold's settings: names, colours, the sidebar. Imported by the site's settings, so it may not touch a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest
from django.templatetags.static import static
from django.urls import reverse_lazy


def may_view(request: HttpRequest) -> bool:
    from fleet.console.roles import staff_of

    return staff_of(request).may_view


def may_administer(request: HttpRequest) -> bool:
    from fleet.console.roles import staff_of

    return staff_of(request).may_administer


def may_operate(request: HttpRequest) -> bool:
    from fleet.console.roles import staff_of

    return staff_of(request).may_operate


def is_superuser(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))


def styles(request: HttpRequest) -> str:
    return static("fleet/console.css")


def form_script(request: HttpRequest) -> str:
    return static("fleet/forms.js")


def live_script(request: HttpRequest) -> str:
    return static("fleet/console.js")


def icon(request: HttpRequest) -> str:
    return static("fleet/icon.svg")


def key_script(request: HttpRequest) -> str:
    return static("fleet/keys.js")


def _item(title: str, icon: str, page: str, allowed: Callable[[HttpRequest], bool] = may_view) -> dict[str, Any]:
    """An entry of the sidebar; `allowed` is for the palette, which asks the same as `permission`."""
    return {
        "title": title,
        "icon": icon,
        "link": reverse_lazy(page),
        "permission": f"fleet.console.nav.{allowed.__name__}",
        "allowed": allowed,
    }


UNFOLD: dict[str, Any] = {
    "SITE_TITLE": "Fleetsite",
    "SITE_HEADER": "Fleetsite",
    "SITE_SUBHEADER": "Agent fleet",
    "SITE_SYMBOL": "hub",
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": icon}],
    "STYLES": [styles],
    "SCRIPTS": [form_script, live_script, key_script],
    "COLORS": {
        "primary": {
            "50": "#eff6ff",
            "100": "#dbeafe",
            "200": "#bfdbfe",
            "300": "#93c5fd",
            "400": "#60a5fa",
            "500": "#5aa0f8",  # lighter than the usual one: links on the dark theme need the contrast
            "600": "#2563eb",
            "700": "#1d4ed8",
            "800": "#1e40af",
            "900": "#1e3a8a",
            "950": "#172554",
        }
    },
    "SHOW_VIEW_ON_SITE": False,
    "DASHBOARD_CALLBACK": "fleet.console.pages.dashboard",
    # a search over all models would walk whole tables
    "COMMAND": {
        "search_models": False,
        "show_history": False,
        "search_callback": "fleet.console.palette.search",
    },
    "SIDEBAR": {
        "show_search": True,
        "command_search": True,
        "show_all_applications": False,
        "navigation": [
            {
                "title": "Operate",
                "items": [
                    _item("Fleet", "hub", "admin:index"),
                    _item("Dispatch a task", "send", "console:task", may_operate),
                    _item("Queue", "stacks", "console:queue"),
                    _item("Workers", "dns", "admin:dispatch_dispatchworker_changelist"),
                    _item("Sessions", "forum", "admin:sessions_app_session_changelist"),
                    _item("Work items", "assignment", "admin:dispatch_workitem_changelist"),
                    _item("Turns", "history", "admin:sessions_app_turn_changelist"),
                    _item("Schedules", "schedule", "admin:dispatch_schedule_changelist"),
                    _item("Callbacks", "webhook", "admin:dispatch_webhookdelivery_changelist"),
                    _item("Agents", "smart_toy", "admin:dispatch_knownagent_changelist"),
                    _item("Goals", "flag", "admin:sessions_app_goal_changelist"),
                    _item("Pauses of claiming", "traffic", "admin:dispatch_claimgate_changelist"),
                    _item("Limits", "speed", "admin:dispatch_claimlimit_changelist"),
                    _item("Health evidence", "monitor_heart", "console:health"),
                ],
            },
            {
                "title": "Access",
                "separator": True,
                "items": [
                    _item("Operations", "checklist", "admin:fleet_bulkoperation_changelist"),
                    _item("Audit log", "fact_check", "admin:sessions_app_auditentry_changelist"),
                    _item("Callback endpoints", "link", "admin:dispatch_webhookendpoint_changelist"),
                    _item("API keys", "key", "admin:fleet_apikey_changelist", may_administer),
                    _item("Memberships", "badge", "admin:fleet_tenantmembership_changelist", is_superuser),
                    _item("Users", "group", "admin:auth_user_changelist", is_superuser),
                ],
            },
        ],
    },
}
