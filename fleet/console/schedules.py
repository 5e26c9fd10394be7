"""The page of schedules: when each runs next, what became of its last runs, and what may be done to it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils import timezone
from django.utils.safestring import SafeString

from dispatch import states
from dispatch.access import Caller
from dispatch.errors import DispatchError
from dispatch.models import Schedule
from dispatch.schedules import selectors, services
from fleet.console.base import FleetAdmin, column, moment, time_column
from fleet.console.content import json_for, reader_of, text_for
from fleet.console.forms import ReasonForm
from fleet.console.labels import VARIANTS, duration, label
from fleet.console.roles import caller_in, staff_of
from fleet.console.strips import Runs, strip

LATE_S = 30  # seconds past its time after which a schedule is called late

log = logging.getLogger(__name__)


class ScheduleAdmin(FleetAdmin):
    """Schedules by name. Run now, pause and resume go through the services, as REST does; each is audited there."""

    refresh_s = 30
    list_display = (
        "name", "when", "state_label", "next_run", "last_run", "last_runs", "failures", "agent_name", "tenant",
    )  # fmt: skip
    empty_words = "No schedule. Add one by manage.py schedules add, or by REST."
    list_filter = ("enabled",)
    ordering = ("name", "pk")
    search_fields = ("name",)
    search_help_text = "Exact name"
    action_form = ReasonForm
    actions: ClassVar[list[str]] = ["run_now", "pause_schedules", "resume_schedules"]
    change_form_outer_before_template = "fleet/schedule_runs.html"
    fieldsets = (
        (None, {"fields": ("name", "tenant", "when", "state_label", "next_run", "last_run", "last_job", "failures")}),
        ("Off", {"fields": ("paused", "paused_by", "paused_reason")}),
        ("What it runs", {"fields": ("agent_name", "session", "priority_word", "task_text", "payload_text")}),
        ("How", {"fields": ("catch_up", "overlap", "jitter")}),
        ("Times", {"fields": ("created", "updated")}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows = super().get_queryset(request)
        return rows if request.resolver_match and request.resolver_match.kwargs else rows.defer("task", "payload")

    def found(self, request: HttpRequest, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        return queryset.filter(name=term)

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        listed = super().get_changelist_instance(request)
        _look(listed.result_list)
        return listed

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        schedule = super().get_object(request, object_id, from_field)
        if not hasattr(schedule, "runs_seen"):
            _look([schedule])
        return schedule

    def page_context(self, request: HttpRequest, obj: Any) -> dict[str, Any]:
        return {
            "fleet_upcoming": _upcoming(obj),
            "fleet_runs": _runs(obj.runs_seen),
            "fleet_strip": strip(obj.runs_seen),
            "fleet_zone": obj.timezone,
            "fleet_utc_apart": obj.timezone != "UTC",
        }

    # -- actions -------------------------------------------------------------------------------------------------------
    @admin.action(description="Run now", permissions=["operate"])
    def run_now(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        def run(caller: Caller, name: str, reason: str) -> str:
            services.schedule_run(caller=caller, name=name, reason=reason)
            return "queued"

        self._each(request, queryset, "run now", run)

    @admin.action(description="Pause", permissions=["operate"])
    def pause_schedules(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        def pause(caller: Caller, name: str, reason: str) -> str:
            services.schedule_pause(caller=caller, name=name, reason=reason)
            return "off"

        self._each(request, queryset, "pause", pause, needs_reason=True)

    @admin.action(description="Resume", permissions=["operate"])
    def resume_schedules(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        def resume(caller: Caller, name: str, reason: str) -> str:
            services.schedule_resume(caller=caller, name=name, reason=reason)
            return "on"

        self._each(request, queryset, "resume", resume)

    def _each(
        self,
        request: HttpRequest,
        queryset: QuerySet[Schedule],
        verb: str,
        act: Callable[[Caller, str, str], str],
        *,
        needs_reason: bool = False,
    ) -> None:
        """Act on each chosen schedule and tell the outcomes in one message. One refusal does not stop the others."""
        if not staff_of(request).may_operate:
            raise PermissionDenied
        reason = request.POST.get("reason", "").replace("\0", "").strip()[:500]
        if request.POST.get("select_across") == "1":
            self.message_user(request, "Choose the schedules themselves; all that match is not taken.", messages.ERROR)
            return
        if needs_reason and not reason:
            self.message_user(request, f"{verb.capitalize()}: give a reason. Nothing was done.", messages.ERROR)
            return
        outcomes: Counter[str] = Counter()
        for schedule in queryset.order_by("pk"):
            try:
                outcome = act(caller_in(request, schedule.tenant), schedule.name, reason)
            except DispatchError as error:
                outcome = error.code.replace("_", " ")
                log.info("console action refused", extra={"verb": verb, "schedule_id": schedule.pk, "code": error.code})
            else:
                note = f"{verb.capitalize()}: {outcome}" + (f" ({reason})" if reason else "")
                user_id = int(request.user.pk or 0)
                LogEntry.objects.log_actions(user_id, [schedule], CHANGE, change_message=note, single_object=True)
            outcomes[outcome] += 1
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
        self.message_user(request, f"{verb.capitalize()}: {said}.", messages.INFO)

    # -- columns -------------------------------------------------------------------------------------------------------
    @column("When")
    def when(self, obj: Schedule) -> str:
        return f"{obj.cron} · {obj.timezone}"

    @column("State", variants=VARIANTS)
    def state_label(self, obj: Schedule) -> str:
        if not obj.enabled:
            return "off"
        if obj.refused_since is not None:
            return "refused"
        return "late" if _late_s(obj) > LATE_S else "on"

    @column("Next run")
    def next_run(self, obj: Schedule) -> SafeString | str:
        if obj.refused_since is not None:
            waited = duration((timezone.now() - obj.refused_since).total_seconds())
            return f"tried again each tick for {waited}: {obj.last_error.replace('_', ' ')}"
        return moment(obj.next_run_at)

    last_run = time_column("last_run_at", "Last run")
    paused = time_column("paused_at", "Since")
    created = time_column("created_at", "Created")
    updated = time_column("updated_at", "Changed")

    @column("Last runs")
    def last_runs(self, obj: Any) -> SafeString | str:
        return render_to_string("fleet/strip.html", {"strip": strip(obj.runs_seen)}) if obj.runs_seen else "–"

    @column("Failures in a row")
    def failures(self, obj: Any) -> str:
        count = selectors.failures_in_a_row(obj.runs_seen)
        return f"{count} or more" if count == selectors.SHOWN_RUNS else str(count)

    @column("Last job")
    def last_job(self, obj: Schedule) -> str:
        return obj.last_job_id or "–"

    @column("Session")
    def session(self, obj: Schedule) -> str:
        return obj.session_id or "each run its own"

    @column("Priority")
    def priority_word(self, obj: Schedule) -> str:
        return states.PRIORITIES[obj.priority]

    @column("Jitter")
    def jitter(self, obj: Schedule) -> str:
        return f"up to {obj.jitter_s:g} s" if obj.jitter_s else "none"

    @column("Task")
    def task_text(self, obj: Schedule) -> str:
        return text_for(reader_of(obj), obj.task)

    @column("Payload")
    def payload_text(self, obj: Schedule) -> str:
        return json_for(reader_of(obj), obj.payload)


def _late_s(schedule: Schedule) -> float:
    return (timezone.now() - schedule.next_run_at).total_seconds() if schedule.next_run_at else 0.0


def _upcoming(schedule: Schedule) -> list[dict[str, str]] | None:
    """The next runs in the schedule's zone and in UTC; None when its line or zone cannot be read."""
    try:
        zone = ZoneInfo(schedule.timezone)
        moments = selectors.upcoming(schedule)
    except Exception as error:
        log.warning("next runs not read", extra={"schedule_id": schedule.pk, "error": type(error).__name__})
        return None
    return [
        {
            "local": f"{at.astimezone(zone):%a %Y-%m-%d %H:%M:%S %z}",
            "utc": f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        }
        for at in moments
    ]


def _look(schedules: Sequence[Any]) -> None:
    """Note the newest runs of each."""
    runs = selectors.runs_of(schedules)
    for schedule in schedules:
        schedule.runs_seen = runs[schedule.pk]


def _runs(runs: Runs) -> list[dict[str, Any]]:
    return [
        {
            "due": f"{run.due_at:%Y-%m-%d %H:%M:%S}",
            "outcome": label(run.outcome),
            "count": run.count if run.count > 1 else None,
            "job_id": run.job_id,
            "status": label(status) if status else None,
            "at": moment(run.at),
        }
        for run, status in runs
    ]
