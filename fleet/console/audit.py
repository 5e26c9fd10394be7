"""The page of the audit: who steered what, when and why."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from fleet.console.base import FieldFilter, FleetAdmin, column, time_column
from fleet.console.labels import VARIANTS
from sessions_app.models import AuditEntry

VERBS = (
    "cancel", "retry", "reply", "pause", "resume", "kill", "drain", "shut", "open", "limit", "unlimit", "run",
    "create", "change", "remove", "revoke", "redeliver", "add", "rotate",
)  # fmt: skip
OBJECTS = ("session", "job", "worker", "gate", "limit", "schedule", "webhook", "api_key")
ACTORS = (("staff", "staff"), ("api_key", "API key"), ("command_line", "command line"), ("system", "system"))
PERIODS = {"hour": ("the last hour", 1), "day": ("the last 24 hours", 24), "week": ("the last 7 days", 168)}


class VerbFilter(FieldFilter):
    title = parameter_name = "verb"
    values = tuple((verb, verb) for verb in VERBS)


class ObjectFilter(FieldFilter):
    title = "kind of object"
    parameter_name = "object_type"
    values = tuple((name, name) for name in OBJECTS)


class ActorFilter(FieldFilter):
    title = "kind of actor"
    parameter_name = "actor_kind"
    values = ACTORS


class PeriodFilter(SimpleListFilter):
    title = "time"
    parameter_name = "period"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(key, words) for key, (words, _) in PERIODS.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        known = PERIODS.get(self.value() or "")
        return queryset.filter(at__gte=timezone.now() - timedelta(hours=known[1])) if known else queryset


class AuditAdmin(FleetAdmin):
    """Acts by REST, MCP, console and command line alike, newest first; nobody edits them."""

    list_display = ("when", "actor", "actor_kind_words", "verb", "object_type", "object_id", "result_label", "reason")
    list_filter = (VerbFilter, ObjectFilter, ActorFilter, PeriodFilter)
    ordering = ("-pk",)
    search_fields = ("object_id",)
    search_help_text = "Exact id of a session, job, worker or schedule"
    fields = (
        "when", "actor_kind_words", "actor", "tenant", "verb", "object_type", "object_id", "reason", "result_label",
        "request_id",
    )  # fmt: skip

    def found(self, request: HttpRequest, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.filter(object_id=term)

    when = time_column("at", "When")

    @column("By")
    def actor_kind_words(self, obj: AuditEntry) -> str:
        return dict(ACTORS).get(obj.actor_kind, obj.actor_kind)

    @column("Result", variants=VARIANTS)
    def result_label(self, obj: AuditEntry) -> str:
        return obj.result.replace("_", " ")
