"""The page of what was done from the console to many at once, with the outcome of each."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.urls import reverse

from fleet.console.base import FleetAdmin, column, time_column
from fleet.console.labels import VARIANTS, counted, label
from fleet.console.roles import staff_of
from fleet.console.verbs import count_words
from fleet.models import BulkOperation

RESULTS = 200  # outcomes on one page
PAGES = {
    "session": "sessions_app_session",
    "job": "dispatch_workitem",
    "goal": "sessions_app_goal",
    "callback": "dispatch_webhookdelivery",
}
MEANINGS = {
    "applied": "done",
    "requested": "its worker is told; the object's own page shows when it has been seen and has stopped",
    "done": "it will not run again",
    "queued": "it is ready again, at the end of its session",
    "already": "it was so before; nothing was done",
    "too_late": "it had ended before; nothing was done",
    "changed": "it changed while the form was open; nothing was done",
    "gone": "it is no longer kept, or not yours; nothing was done",
    "not_found": "it is no longer kept; nothing was done",
    "not_retryable": "only what failed, was cancelled or is a dead letter runs again; nothing was done",
    "queue_full": "the queue is full; nothing was done, try again later",
}


class BulkOperationAdmin(FleetAdmin):
    """Operations, newest first. One over several tenants is seen by who did it, and by who sees every tenant."""

    tenant_path = None
    list_display = ("when", "what", "status_label", "outcomes", "actor", "reason_text", "tenant")
    ordering = ("-pk",)
    fields = ("when", "what", "status_label", "outcomes", "actor", "reason_text", "tenant", "request_id", "finished")
    change_form_outer_before_template = "fleet/operation.html"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        if not (request.resolver_match and request.resolver_match.kwargs):
            rows = rows.defer("results")
        staff = staff_of(request)
        if staff.tenants is None:
            return rows
        return rows.filter(Q(tenant__in=staff.tenants) | Q(tenant="", actor=staff.name))

    def page_context(self, request: HttpRequest, obj: BulkOperation) -> dict[str, Any]:
        total = len(obj.results)
        asked = request.GET.get("from", "")
        first = min(int(asked), total) if asked.isascii() and asked.isdigit() and len(asked) < 8 else 0
        shown = obj.results[first : first + RESULTS]
        return {
            "fleet_counts": [{"count": count, "label": label(word)} for word, count in sorted(obj.counts.items())],
            "fleet_results": [_result(obj.object_type, *result) for result in shown],
            "fleet_running": obj.status == "running",
            "fleet_total": obj.total,
            "fleet_left": max(0, obj.total - total) if obj.status == "interrupted" else None,
            "fleet_pages": _pages(first, len(shown), total) if total > RESULTS else None,
        }

    when = time_column("created_at", "When")
    finished = time_column("finished_at", "Finished")

    @column("What")
    def what(self, obj: BulkOperation) -> str:
        return f"{obj.verb.capitalize()} {counted(obj.total, obj.object_type)}"

    @column("Status", variants=VARIANTS)
    def status_label(self, obj: BulkOperation) -> str:
        return obj.status

    @column("Outcomes")
    def outcomes(self, obj: BulkOperation) -> str:
        return count_words(obj.counts)

    @column("Reason")
    def reason_text(self, obj: BulkOperation) -> str:
        return obj.reason or "–"


def _result(object_type: str, pk: int, name: str, outcome: str) -> dict[str, Any]:
    page = PAGES.get(object_type)
    known = bool(page and name and outcome not in ("gone", "not_found"))
    return {
        "name": name or f"number {pk}",
        "href": reverse(f"admin:{page}_change", args=[pk]) if known else "",
        "label": label(outcome),
        "meaning": MEANINGS.get(outcome, "refused; nothing was done"),
    }


def _pages(first: int, shown: int, total: int) -> dict[str, int | None]:
    after = first + RESULTS
    return {
        "first": first + 1,
        "last": first + shown,
        "total": total,
        "before": max(0, first - RESULTS) if first else None,
        "after": after if after < total else None,
    }
