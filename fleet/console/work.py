"""The page of the work items: why each stands where it stands, its lease, its life, and what may be done to it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any, ClassVar

from django.conf import settings
from django.contrib.admin import SimpleListFilter
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import QuerySet
from django.db.models.functions import Substr
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from dispatch import services, states
from dispatch.access import Caller
from dispatch.models import DispatchWorker, Outcome, WorkItem, WorkItemDependency
from dispatch.usage import job_usage
from fleet.console.base import column, moment, time_column
from fleet.console.callbacks import callbacks_of
from fleet.console.content import explanation_for, json_for, reader_of, text_for
from fleet.console.labels import VARIANTS, duration, fine_duration, label
from fleet.console.leases import lease_of
from fleet.console.operations import ActingAdmin, offer
from fleet.console.output import output_after, output_end
from fleet.console.roles import Staff, staff_of
from fleet.console.timeline import item_acts, item_steps
from fleet.console.usage import usage_line
from fleet.console.verbs import Verb, each
from sessions_app.models import Goal, Turn
from sessions_app.selectors import session_keys

MAX_EVENTS = 200
MAX_RUNS = 50
ERROR = 40  # characters of an error in the list

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
        if not self.value():
            return queryset
        chosen = queryset.filter(status=self.value())
        # said in the words of the index of what has not ended
        return chosen.filter(finished_at__isnull=True) if self.value() in states.UNFINISHED else chosen


def cancel_job(caller: Caller, item: WorkItem | Goal, reason: str) -> str:
    return str(services.job_cancel(caller=caller, job_id=item.job_id, reason=reason)["cancel"])


def retry_job(caller: Caller, item: WorkItem | Goal, reason: str) -> str:
    services.job_retry(caller=caller, job_id=item.job_id, reason=reason)
    return "queued"


def _held(item: WorkItem) -> str:
    """Its status and its holder: who cancels what waits does not stop what has begun meanwhile."""
    return f"{item.status}-{item.epoch}"


CANCEL = Verb(
    name="cancel",
    title="Cancel",
    says=(
        "What waits does not run. What runs is told to stop: its result is not kept, and what it did outside stays"
        " done. Jobs that wait for it are cancelled too."
    ),
    act=each(cancel_job),
    applies=lambda item: item.status not in states.TERMINAL,
    expects=_held,
    destructive=True,
)
RETRY = Verb(
    name="retry",
    title="Retry",
    says="The same job runs again, from its first attempt, at the end of its session. Its steps and checkpoint stay.",
    act=each(retry_job),
    applies=lambda item: item.status in states.RETRYABLE,
    expects=_held,
)


class LeaseFilter(SimpleListFilter):
    """What is held now, all of it in the index of live leases."""

    title = parameter_name = "lease"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("held", "held"), ("expired", "expired"), ("lost", "its owner is silent or gone")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        held = queryset.filter(status__in=sorted(states.LIVE))
        if self.value() == "held":
            return held.filter(lease_expires_at__gte=timezone.now())
        if self.value() == "expired":
            return held.filter(lease_expires_at__lt=timezone.now())
        if self.value() == "lost":
            alive = timezone.now() - timedelta(seconds=settings.FLEETSITE.worker_stale_s)
            return held.exclude(owner__in=DispatchWorker.objects.filter(last_heartbeat__gte=alive).values("token"))
        return queryset


class WorkItemAdmin(ActingAdmin):
    """Jobs, newest first. Cancel and retry go through the services, as REST does; each is audited there."""

    noun = ("job", "jobs")
    name_field = "job_id"
    empty_words = "No job yet."
    verbs: ClassVar[dict[str, Verb]] = {"cancel_jobs": CANCEL, "retry_jobs": RETRY}
    cancel_jobs = offer("cancel_jobs", CANCEL)
    retry_jobs = offer("retry_jobs", RETRY)
    actions: ClassVar[list[str]] = list(verbs)
    list_display = (
        "job_id", "agent_name", "status_label", "session_link", "short_tries", "lease", "waited", "ran", "error",
        "created", "tenant",
    )  # fmt: skip
    list_select_related = ("session",)
    list_filter = (StateFilter, LeaseFilter)
    ordering = ("-pk",)
    search_fields = ("job_id",)
    search_help_text = "Exact job id or session id"
    change_form_outer_before_template = "fleet/item.html"
    fieldsets = (
        (
            None,
            {"fields": ("job_id", "tenant", "session", "session_seq", "kind", "agent_name", "status_label", "tries")},
        ),
        ("Work", {"fields": ("task_text", "payload_text")}),
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
            "job_id",
            "agent_name",
            "status",
            "session__session_id",
            "attempt",
            "max_attempts",
            "created_at",
            "started_at",
            "finished_at",
            "run_at",
            "lease_expires_at",
            "tenant",
            "epoch",
        )

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        listed = super().get_changelist_instance(request)
        errors = errors_of(listed.result_list)
        for item in listed.result_list:
            item.error_seen = errors.get(item.pk)
        return listed

    def found(self, request: HttpRequest, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Exact only: a part of an id would be looked for in every row."""
        if term.startswith(("orch-", "goal-")) and queryset.filter(job_id=term).exists():
            return queryset.filter(job_id=term)
        return queryset.filter(session_id__in=session_keys([term], tenants=staff_of(request).tenants))

    def page_context(self, request: HttpRequest, obj: WorkItem) -> dict[str, Any]:
        staff = staff_of(request)
        return {
            "fleet_buttons": self.buttons(request, obj),
            "fleet_pk": obj.pk,
            "fleet_list_href": reverse("admin:dispatch_workitem_changelist"),
            "fleet_explain": _explain(obj, staff),
            "fleet_lease": lease_of(obj),
            "fleet_waits_for": _waits_for(obj),
            "fleet_runs": _runs(obj),
            "fleet_steps": item_steps(list(obj.events.order_by("-pk")[:MAX_EVENTS])[::-1], item_acts(obj), staff),
            "fleet_outcome": _outcome(obj, staff),
            "fleet_output": output_end(obj, staff),
            "fleet_callbacks": callbacks_of(obj),
            "fleet_usage": usage_line(job_usage(obj.pk)),
        }

    def get_urls(self) -> list[Any]:
        name = "dispatch_workitem_output"
        output = path("<path:object_id>/output/", self.admin_site.admin_view(self.output_view), name=name)
        return [output, *super().get_urls()]

    def output_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What the turn has said after a number, for the page that follows it."""
        if request.method != "GET":
            return HttpResponseNotAllowed(["GET"])
        if not self.has_view_permission(request):
            raise PermissionDenied
        after = request.GET.get("after", "0")
        if not (after.isascii() and after.isdigit() and len(after) < 19):
            raise BadRequest("after: must be a number of the answer before")
        item = self.get_object(request, object_id)
        return JsonResponse(asdict(output_after(item, staff_of(request), int(after))))

    @column("Status", variants=VARIANTS)
    def status_label(self, obj: WorkItem) -> str:
        return obj.status.replace("_", " ")

    @column("Tries")
    def tries(self, obj: WorkItem) -> str:
        return f"{obj.attempt} of {obj.max_attempts}"

    @column("Session")
    def session_link(self, obj: WorkItem) -> SafeString:
        href = reverse("admin:sessions_app_session_change", args=[obj.session_id])
        return format_html('<a href="{}">{}</a>', href, obj.session.session_id)

    @column("Tries")
    def short_tries(self, obj: WorkItem) -> str:
        return f"{obj.attempt}/{obj.max_attempts}"

    @column("Lease")
    def lease(self, obj: WorkItem) -> SafeString | str:
        if obj.status not in states.LIVE or obj.lease_expires_at is None:
            return "–"
        left = (obj.lease_expires_at - timezone.now()).total_seconds()
        if left < 0:
            return format_html('<span class="fc-text-danger">expired {} ago</span>', duration(-left))
        return f"{duration(left)} left"

    @column("Waited")
    def waited(self, obj: WorkItem) -> str:
        """From its dispatch, or from when it was to start, until it did, or ended without, or now."""
        until = obj.started_at or obj.finished_at or timezone.now()
        return fine_duration(max(0.0, (until - (obj.run_at or obj.created_at)).total_seconds()))

    @column("Ran")
    def ran(self, obj: WorkItem) -> str:
        """Its last run, up to now while it goes on."""
        if obj.started_at is None or not (obj.finished_at or obj.status in states.LIVE):
            return "–"
        return fine_duration(max(0.0, ((obj.finished_at or timezone.now()) - obj.started_at).total_seconds()))

    @column("Error")
    def error(self, obj: WorkItem) -> str:
        seen: tuple[str, str] | None = getattr(obj, "error_seen", None)
        if seen is None:
            return "–"
        code, message = seen
        said = f": {message[:ERROR]}" if message and reader_of(obj).may_read_content else ""
        return code + said

    created = time_column("created_at", "Created")
    due = time_column("due_at", "Not before")
    deadline_at = time_column("deadline", "Deadline")
    started = time_column("started_at", "Started")
    finished = time_column("finished_at", "Finished")
    cancel_requested = time_column("cancel_requested_at", "Cancel requested")

    @column("Task")
    def task_text(self, obj: WorkItem) -> str:
        return text_for(reader_of(obj), obj.task)

    @column("Payload")
    def payload_text(self, obj: WorkItem) -> str:
        return json_for(reader_of(obj), obj.payload)


def errors_of(items: Sequence[WorkItem]) -> dict[int, tuple[str, str]]:
    """{item: code and message} of those that ended badly, by their last run."""
    bad = {item.pk: item.epoch for item in items if item.status in states.RETRYABLE}
    rows = Outcome.objects.filter(work_item_id__in=list(bad)).values_list(
        "work_item_id", "epoch", "error_code", Substr("error_message", 1, ERROR)
    )
    return {pk: (code, message) for pk, epoch, code, message in rows if bad[pk] == epoch and code}


def _explain(item: WorkItem, staff: Staff) -> str:
    try:
        return explanation_for(staff, item)
    except Exception as error:
        log.warning("explanation not read", extra={"job_id": item.job_id, "error": type(error).__name__})
        return "unknown: it could not be read"


def _runs(item: WorkItem) -> list[dict[str, Any]]:
    """The newest runs that an agent made of it, oldest first."""
    newest_first = list(Turn.objects.filter(work_item_id=item.pk).order_by("-epoch")[:MAX_RUNS])
    return [
        {
            "attempt": run.attempt,
            "epoch": run.epoch,
            "label": label(run.status),
            "started": moment(run.started_at),
            "ran": duration((run.finished_at - run.started_at).total_seconds())
            if run.started_at and run.finished_at
            else "–",
        }
        for run in reversed(newest_first)
    ]


def _waits_for(item: WorkItem) -> list[dict[str, Any]]:
    """The jobs that it waits or waited for, with their states."""
    edges = WorkItemDependency.objects.filter(work_item=item).order_by("pk")[:MAX_RUNS]
    return [
        {"pk": pk, "job_id": job_id, "label": label(status), "kind": "child" if kind == "child" else "dependency"}
        for pk, job_id, status, kind in edges.values_list("parent_id", "parent__job_id", "parent__status", "kind")
    ]


def _outcome(item: WorkItem, staff: Staff) -> dict[str, str] | None:
    """What the last run ended with; None while the item has not ended."""
    outcome = Outcome.objects.filter(work_item=item, epoch=item.epoch).first()
    if outcome is None:
        return None
    return {
        "result": json_for(staff, outcome.result, indent=1),
        "code": outcome.error_code,
        "message": text_for(staff, outcome.error_message),
    }
