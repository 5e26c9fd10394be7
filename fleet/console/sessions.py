"""Pages of what is remembered: sessions with their turns, turns, goals, the audit log."""

from __future__ import annotations

import json
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest

from dispatch.models import WorkItem
from fleet.console.base import FleetAdmin, column, moment, time_column
from fleet.console.labels import VARIANTS, label
from sessions_app.models import Goal, Session, Turn

MAX_TURNS = 50
MAX_TEXT = 2_000  # characters of a task


class SessionAdmin(FleetAdmin):
    """Sessions; the detail shows the newest 50 turns, oldest first."""

    list_display = ("session_id", "state_label", "domain", "tenant", "turn_number", "updated")
    list_filter = ("status",)
    ordering = ("-pk",)
    search_fields = ("session_id",)
    search_help_text = "Exact session id, or domain:NAME"
    change_form_outer_before_template = "fleet/session_turns.html"
    fieldsets = (
        (None, {"fields": ("session_id", "tenant", "state_label", "domain", "runs", "turn_number")}),
        (
            "What somebody wants of it",
            {"fields": ("desired", "desired_by", "desired_reason", "desired_when", "seen", "stopped")},
        ),
        ("Memory", {"fields": ("metadata_text", "state_text")}),
        ("Times", {"fields": ("created", "updated")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        return rows if request.resolver_match and request.resolver_match.kwargs else rows.defer("state", "metadata")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact only: a part of an id would be looked for in every row."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if term.startswith("domain:"):
            return queryset.filter(domain=term.removeprefix("domain:")), False
        return queryset.filter(session_id=term), False

    def page_context(self, request: HttpRequest, obj: Session) -> dict[str, Any]:
        items = (
            WorkItem.objects.filter(session=obj)
            .order_by("-session_seq")
            .only(
                "job_id",
                "session_seq",
                "agent_name",
                "status",
                "attempt",
                "task",
                "started_at",
                "finished_at",
                "created_at",
            )[:MAX_TURNS]
        )
        newest_first = list(items)
        runs: dict[int, Turn] = {}
        for run in Turn.objects.filter(work_item_id__in=[item.pk for item in newest_first]).order_by("epoch"):
            runs[run.work_item_id] = run
        return {
            "fleet_turns": [
                {
                    "pk": item.pk,
                    "job_id": item.job_id,
                    "number": runs[item.pk].turn_number if item.pk in runs else None,
                    "agent_name": item.agent_name,
                    "label": label(item.status),
                    "attempt": item.attempt,
                    "task": item.task[:MAX_TEXT],
                    "created": moment(item.created_at),
                    "finished": moment(item.finished_at),
                }
                for item in reversed(newest_first)
            ],
            "fleet_turns_cut": len(newest_first) == MAX_TURNS,
        }

    @column("Status", variants=VARIANTS)
    def state_label(self, obj: Session) -> str:
        return obj.status.replace("_", " ")

    updated = time_column("updated_at", "Updated")
    created = time_column("created_at", "Created")
    desired_when = time_column("desired_at", "Desired since")
    seen = time_column("seen_at", "Seen by its worker")
    stopped = time_column("stopped_at", "Stopped")

    @column("Runs")
    def runs(self, obj: Session) -> str:
        return "in the background" if obj.background else "for a person"

    @column("Metadata")
    def metadata_text(self, obj: Session) -> str:
        return json.dumps(obj.metadata, ensure_ascii=False)

    @column("State")
    def state_text(self, obj: Session) -> str:
        return json.dumps(obj.state, ensure_ascii=False)[:MAX_TEXT]


class TurnAdmin(FleetAdmin):
    """Runs of agents, newest first."""

    tenant_path = "session__tenant"
    list_display = ("turn", "session", "status_label", "attempt", "epoch", "started", "finished")
    list_select_related = ("session",)
    ordering = ("-pk",)
    fields = ("session", "turn_number", "status_label", "attempt", "epoch", "work_item_id", "started", "finished")

    @column("Turn")
    def turn(self, obj: Turn) -> str:
        return f"Turn {obj.turn_number}"

    @column("Status", variants=VARIANTS)
    def status_label(self, obj: Turn) -> str:
        return obj.status.replace("_", " ")

    started = time_column("started_at", "Started")
    finished = time_column("finished_at", "Finished")


class GoalAdmin(FleetAdmin):
    """Objectives and how far they are."""

    list_display = ("job_id", "objective_text", "status_label", "iterations", "tenant", "updated")
    ordering = ("-pk",)
    fields = ("job_id", "tenant", "session", "objective", "status_label", "iterations", "validation", "last_validation")

    @column("Objective")
    def objective_text(self, obj: Goal) -> str:
        return obj.objective[:120]

    @column("Status", variants=VARIANTS)
    def status_label(self, obj: Goal) -> str:
        return obj.status.replace("_", " ")

    @column("Iterations")
    def iterations(self, obj: Goal) -> str:
        return f"{obj.iteration} of {obj.max_iterations}"

    updated = time_column("updated_at", "Updated")


class AuditAdmin(FleetAdmin):
    """Who steered what, when and why; nobody edits it."""

    list_display = ("when", "actor", "actor_kind", "verb", "object_id", "result", "reason", "tenant")
    ordering = ("-pk",)
    search_fields = ("object_id",)
    search_help_text = "Exact id of the object"
    fields = (
        "when", "actor_kind", "actor", "tenant", "verb", "object_type", "object_id", "reason", "result", "request_id",
    )  # fmt: skip

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        term = search_term.strip()
        return (queryset.filter(object_id=term) if term else queryset), False

    when = time_column("at", "When")
