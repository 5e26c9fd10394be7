"""The page of the goals: objective, constraints, how each iteration was judged, and the work item whose life it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

from django.contrib.admin import SimpleListFilter
from django.db.models import Exists, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce, Substr
from django.http import HttpRequest
from django.urls import reverse

from dispatch import services, states
from dispatch.access import Caller
from dispatch.models import WorkItem
from fleet.console.base import column, moment, time_column
from fleet.console.content import reader_of, text_for
from fleet.console.labels import BAD, GOOD, VARIANTS, Label, duration
from fleet.console.operations import ActingAdmin, offer
from fleet.console.roles import Staff, staff_of
from fleet.console.verbs import Verb, each
from fleet.console.work import cancel_job, retry_job
from sessions_app.models import Goal, GoalIteration

MAX_TEXT = 20_000  # characters of an objective, of constraints, of a validation
MAX_OUTPUT = 2_000  # of an iteration's output and result
MAX_ITERATIONS = 50
LIST_TEXT = 120


def _items() -> QuerySet[WorkItem]:
    return WorkItem.objects.filter(pk=OuterRef("work_item_id"), kind=states.GOAL_LOOP)


class StatusFilter(SimpleListFilter):
    title = "status"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(status, status.replace("_", " ")) for status in states.STATUSES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(Exists(_items().filter(status=self.value()))) if self.value() else queryset


def _steer(verb: str) -> Callable[[Caller, Any, str], str]:
    """Its session is what is paused: the loop stops where an iteration has been committed."""

    def act(caller: Caller, goal: Any, reason: str) -> str:
        ids = [goal.session.session_id]
        answer = services.sessions_control(caller=caller, verb=verb, session_ids=ids, reason=reason)
        return str(answer["results"][0]["outcome"])

    return act


def _goes_on(goal: Any) -> bool:
    return goal.status in states.UNFINISHED


PAUSE = Verb(
    name="pause",
    title="Pause",
    says=(
        "Its session is paused: an iteration that runs is judged and committed, and no other begins until somebody"
        " resumes."
    ),
    act=each(_steer("pause")),
    applies=lambda goal: _goes_on(goal) and goal.session.desired != "pause",
)
RESUME = Verb(
    name="resume",
    title="Resume",
    says="Its session goes on, with the next iteration.",
    act=each(_steer("resume")),
    applies=lambda goal: goal.session.desired == "pause",
    expects=lambda goal: str(goal.session.desired),
    needs_reason=False,
)
CANCEL = Verb(
    name="cancel",
    title="Cancel",
    says="The loop ends; committed iterations stay, the one that runs is told to stop and does not count.",
    act=each(cancel_job),
    applies=_goes_on,
    expects=lambda goal: str(goal.status),
    destructive=True,
)
RETRY = Verb(
    name="retry",
    title="Retry",
    says="The loop goes on after its last iteration; one that has used all of them gets as many again.",
    act=each(retry_job),
    applies=lambda goal: goal.status in states.RETRYABLE,
    expects=lambda goal: str(goal.status),
)


class GoalAdmin(ActingAdmin):
    """Goals, newest first. Their status is their work item's; what is done to one is done to its job or its session."""

    noun = ("goal", "goals")
    name_field = "job_id"
    verbs: ClassVar[dict[str, Verb]] = {
        "pause_goals": PAUSE, "resume_goals": RESUME, "cancel_goals": CANCEL, "retry_goals": RETRY,
    }  # fmt: skip
    pause_goals = offer("pause_goals", PAUSE)
    resume_goals = offer("resume_goals", RESUME)
    cancel_goals = offer("cancel_goals", CANCEL)
    retry_goals = offer("retry_goals", RETRY)
    actions: ClassVar[list[str]] = list(verbs)
    list_select_related = ("session",)
    empty_words = "No goal yet."
    refresh_s = 30
    list_display = ("job_id", "objective_start", "status_label", "iterations", "validated", "tenant", "updated")
    list_filter = (StatusFilter,)
    ordering = ("-pk",)
    search_fields = ("job_id",)
    search_help_text = "Exact job id"
    change_form_outer_before_template = "fleet/goal.html"
    fields = ("job_id", "tenant", "session", "status_label", "iterations", "time_used", "created", "updated")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = (
            super()
            .get_queryset(request)
            .select_related("session")
            .defer("session__state", "session__metadata")
            .annotate(status=Coalesce(Subquery(_items().values("status")[:1]), Value("gone")))
        )
        if request.resolver_match and request.resolver_match.kwargs:
            return rows
        start = Substr("objective", 1, LIST_TEXT)
        listed: QuerySet[Any] = rows.annotate(start=start).defer(
            "objective", "validation", "constraints", "last_result", "state"
        )
        return listed

    def found(self, request: HttpRequest, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Exact only: a part of an id would be looked for in every row."""
        return queryset.filter(job_id=term)

    def page_context(self, request: HttpRequest, obj: Goal) -> dict[str, Any]:
        staff = staff_of(request)
        rows = list(GoalIteration.objects.filter(work_item_id=obj.work_item_id).order_by("-iteration")[:MAX_ITERATIONS])
        return {
            "fleet_buttons": self.buttons(request, obj),
            "fleet_pk": obj.pk,
            "fleet_list_href": reverse("admin:sessions_app_goal_changelist"),
            "fleet_item_pk": obj.work_item_id,
            "fleet_ended": getattr(obj, "status", None) in states.TERMINAL,
            "fleet_objective": text_for(staff, obj.objective, most=MAX_TEXT),
            "fleet_constraints": _json(staff, obj.constraints),
            "fleet_validation": _json(staff, obj.validation),
            "fleet_iterations": [_shown(staff, row) for row in rows],
            "fleet_earlier": max(0, obj.iteration - len(rows)),
        }

    @column("Objective")
    def objective_start(self, obj: Any) -> str:
        return text_for(reader_of(obj), obj.start)

    @column("Status", variants=VARIANTS)
    def status_label(self, obj: Any) -> str:
        return str(obj.status).replace("_", " ")

    @column("Iterations")
    def iterations(self, obj: Goal) -> str:
        return f"{obj.iteration} of {obj.max_iterations}"

    @column("Last validation", variants={"passed": GOOD, "not passed": BAD, "none yet": "default"})
    def validated(self, obj: Goal) -> str:
        return _word(obj.last_validation["passed"]) if obj.last_validation else "none yet"

    @column("Time used")
    def time_used(self, obj: Goal) -> str:
        most = obj.constraints.get("max_seconds") if isinstance(obj.constraints, dict) else None
        return duration(obj.spent_s) if most is None else f"{duration(obj.spent_s)} of {duration(most)}"

    created = time_column("created_at", "Created")
    updated = time_column("updated_at", "Updated")


def _word(passed: bool) -> str:
    return "passed" if passed else "not passed"


def _json(staff: Staff, value: Any) -> str:
    return "" if value is None else text_for(staff, json.dumps(value, ensure_ascii=False, indent=1), most=MAX_TEXT)


def _shown(staff: Staff, row: GoalIteration) -> dict[str, Any]:
    return {
        "number": row.iteration,
        "label": Label(_word(row.passed), GOOD if row.passed else BAD),
        "exit_code": row.validation.get("exit_code"),
        "took": duration(row.seconds),
        "epoch": row.epoch,
        "finished": moment(row.finished_at),
        "output": text_for(staff, str(row.validation.get("output", ""))[-MAX_OUTPUT:]),
        "result": text_for(staff, row.result_excerpt[:MAX_OUTPUT]),
    }
