"""The page of the work items, with their timeline and the two things that may be done to them."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest

from dispatch import selectors, services, states
from dispatch.access import Caller
from dispatch.errors import DispatchError
from dispatch.models import Outcome, WorkItem
from fleet.console.base import FleetAdmin, column, moment, time_column
from fleet.console.forms import ReasonForm, reason_in, user_id_of
from fleet.console.labels import VARIANTS, label
from fleet.console.roles import caller_in, staff_of

MAX_TEXT = 2_000  # characters of a task, an error, a payload or a result
MAX_EVENTS = 200

log = logging.getLogger(__name__)


ENDED_BADLY = "ended_badly"  # what the fleet page counts as failures


class StateFilter(SimpleListFilter):
    title = "status"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(ENDED_BADLY, "failed or dead letter"), *((s, s.replace("_", " ")) for s in states.STATUSES)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == ENDED_BADLY:
            return queryset.filter(status__in=[states.FAILED, states.DEAD_LETTER])
        return queryset.filter(status=self.value()) if self.value() else queryset


class WorkItemAdmin(FleetAdmin):
    """Jobs, newest first. Cancel and retry go through the services, as REST does; each is audited there."""

    list_display = ("job_id", "agent_name", "status_label", "session", "tries", "created", "tenant")
    list_select_related = ("session",)
    list_filter = (StateFilter,)
    ordering = ("-pk",)
    search_fields = ("job_id",)
    search_help_text = "Exact job id or session id"
    action_form = ReasonForm
    actions: ClassVar[list[str]] = ["cancel_jobs", "retry_jobs"]
    change_form_outer_before_template = "fleet/item_explain.html"
    change_form_outer_after_template = "fleet/item_events.html"
    fieldsets = (
        (
            None,
            {"fields": ("job_id", "tenant", "session", "session_seq", "kind", "agent_name", "status_label", "tries")},
        ),
        ("Work", {"fields": ("task_text", "payload_text")}),
        ("Lease", {"fields": ("epoch", "lease_expires")}),
        (
            "Times",
            {"fields": ("created", "due", "deadline_at", "started", "finished", "cancel_requested", "cancel_reason")},
        ),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        if request.resolver_match and request.resolver_match.kwargs:
            return rows
        return rows.only(
            "job_id", "agent_name", "status", "session__session_id", "attempt", "max_attempts", "created_at", "tenant"
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Exact only: a part of an id would be looked for in every row."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if term.startswith(("orch-", "goal-")) and queryset.filter(job_id=term).exists():
            return queryset.filter(job_id=term), False
        return queryset.filter(session__session_id=term), False

    def page_context(self, request: HttpRequest, obj: WorkItem) -> dict[str, Any]:
        caller = caller_in(request, obj.tenant)
        return {
            "fleet_explain": _explain(caller, obj),
            "fleet_events": _events(obj),
            "fleet_outcome": _outcome(obj),
        }

    @admin.action(description="Cancel", permissions=["operate"])
    def cancel_jobs(self, request: HttpRequest, queryset: QuerySet[WorkItem]) -> None:
        reason = reason_in(request)
        self._each(
            request,
            queryset,
            "cancel",
            lambda caller, item: str(
                services.job_cancel(caller=caller, job_id=item.job_id, reason=reason)["cancel"]
            ).replace("_", " "),
        )

    @admin.action(description="Retry", permissions=["operate"])
    def retry_jobs(self, request: HttpRequest, queryset: QuerySet[WorkItem]) -> None:
        def retry(caller: Caller, item: WorkItem) -> str:
            services.job_retry(caller=caller, job_id=item.job_id)
            return "queued"

        self._each(request, queryset, "retry", retry)

    def _each(
        self,
        request: HttpRequest,
        queryset: QuerySet[WorkItem],
        verb: str,
        act: Callable[[Caller, WorkItem], str],
    ) -> None:
        """Act on each chosen item and tell the outcomes in one message. One refusal does not stop the others."""
        if not staff_of(request).may_operate:
            raise PermissionDenied
        if request.POST.get("select_across") == "1":
            self.message_user(request, "Choose the jobs themselves; all that match is not taken.", messages.ERROR)
            return
        outcomes: Counter[str] = Counter()
        user_id = user_id_of(request)
        reason = reason_in(request)
        for item in queryset.order_by("pk"):
            try:
                outcome = act(caller_in(request, item.tenant), item)
            except DispatchError as error:
                outcome = error.code.replace("_", " ")
                log.info("console action refused", extra={"verb": verb, "job_id": item.job_id, "code": error.code})
            else:
                note = f"{verb.capitalize()}: {outcome}" + (f" ({reason})" if reason else "")
                LogEntry.objects.log_actions(user_id, [item], CHANGE, change_message=note, single_object=True)
            outcomes[outcome] += 1
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        self.message_user(request, f"{verb.capitalize()}: {said}.", messages.INFO)

    @column("Status", variants=VARIANTS)
    def status_label(self, obj: WorkItem) -> str:
        return obj.status.replace("_", " ")

    @column("Tries")
    def tries(self, obj: WorkItem) -> str:
        return f"{obj.attempt} of {obj.max_attempts}"

    created = time_column("created_at", "Created")
    due = time_column("due_at", "Not before")
    deadline_at = time_column("deadline", "Deadline")
    started = time_column("started_at", "Started")
    finished = time_column("finished_at", "Finished")
    cancel_requested = time_column("cancel_requested_at", "Cancel requested")
    lease_expires = time_column("lease_expires_at", "Lease ends")

    @column("Task")
    def task_text(self, obj: WorkItem) -> str:
        return obj.task[:MAX_TEXT]

    @column("Payload")
    def payload_text(self, obj: WorkItem) -> str:
        return json.dumps(obj.payload, ensure_ascii=False)[:MAX_TEXT]


def _explain(caller: Caller, item: WorkItem) -> str:
    try:
        told = selectors.job_explain(caller=caller, job_id=item.job_id)
    except Exception as error:
        log.warning("explanation not read", extra={"job_id": item.job_id, "error": type(error).__name__})
        return "unknown"
    return str(told["detail"])


def _events(item: WorkItem) -> list[dict[str, Any]]:
    """The newest 200, oldest first."""
    newest_first = list(item.events.order_by("-pk")[:MAX_EVENTS])
    return [
        {
            "at": moment(event.at),
            "event": event.event.replace("_", " "),
            "label": label(event.to_status) if event.to_status else None,
            "attempt": event.attempt,
            "epoch": event.epoch,
            "worker": event.worker[:8],
            "reason": event.reason[:MAX_TEXT],
        }
        for event in reversed(newest_first)
    ]


def _outcome(item: WorkItem) -> dict[str, str] | None:
    """What the last run ended with; None while the item has not ended."""
    outcome = Outcome.objects.filter(work_item=item, epoch=item.epoch).first()
    if outcome is None:
        return None
    return {
        "result": json.dumps(outcome.result, ensure_ascii=False, indent=1)[:MAX_TEXT],
        "code": outcome.error_code,
        "message": outcome.error_message[:MAX_TEXT],
    }
