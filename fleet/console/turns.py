"""The page of the runs of agents."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from dispatch.models import WorkItem
from fleet.console.base import FleetAdmin, column, time_column
from fleet.console.labels import VARIANTS
from fleet.console.roles import staff_of
from sessions_app.models import Turn
from sessions_app.selectors import session_keys

NEWEST_JOBS = 100  # whose turns are listed of some tenants: a turn itself says nothing of its tenant


class TurnAdmin(FleetAdmin):
    """Runs of agents, newest first."""

    tenant_path = "session__tenant"
    list_display = ("turn", "session", "status_label", "attempt", "epoch", "started", "finished")
    list_select_related = ("session",)
    ordering = ("-pk",)
    search_fields = ("work_item_id",)
    search_help_text = f"Exact job id or session id. Without one: of your tenants the newest {NEWEST_JOBS:,} jobs"
    fields = ("session", "turn_number", "status_label", "attempt", "epoch", "work_item_id", "started", "finished")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact only, and never more than indexes give at once."""
        term, tenants = search_term.strip(), staff_of(request).tenants
        if not term and tenants is not None:
            newest = WorkItem.objects.filter(tenant__in=tenants).order_by("-pk").values_list("pk", flat=True)
            return queryset.filter(work_item_id__in=list(newest[:NEWEST_JOBS])), False
        return super().get_search_results(request, queryset, search_term)

    def found(self, request: HttpRequest, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        jobs = WorkItem.objects.filter(job_id=term).values_list("pk", flat=True)
        if term.startswith(("orch-", "goal-")) and (job := jobs.first()):
            return queryset.filter(work_item_id=job)
        return queryset.filter(session_id__in=session_keys([term], tenants=staff_of(request).tenants))

    @column("Turn")
    def turn(self, obj: Turn) -> str:
        return f"Turn {obj.turn_number}"

    @column("Status", variants=VARIANTS)
    def status_label(self, obj: Turn) -> str:
        return obj.status.replace("_", " ")

    started = time_column("started_at", "Started")
    finished = time_column("finished_at", "Finished")
