"""The page of the sessions: what each is, why it does not go on, what somebody wants of it, and its turns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from django.contrib import messages
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.shortcuts import redirect
from django.urls import path, reverse
from django.utils import timezone

from dispatch import services
from dispatch.api.inputs import MAX_STEERED, ReplyBody
from dispatch.errors import DispatchError
from dispatch.inputs import read_input
from dispatch.models import Question, WorkItem
from dispatch.parts import parts
from dispatch.usage import session_usage
from dispatch.wording import who_when_why
from fleet.console.base import column, moment, time_column
from fleet.console.content import explanation_for, json_for, reader_of, text_for
from fleet.console.forms import user_id_of
from fleet.console.labels import VARIANTS
from fleet.console.leases import lease_of
from fleet.console.operations import PART, ActingAdmin, offer
from fleet.console.roles import Staff, caller_in, staff_of
from fleet.console.timeline import session_timeline
from fleet.console.usage import usage_line
from fleet.console.verbs import Callers, Told, Verb, by_tenant
from sessions_app import states
from sessions_app.models import Session
from sessions_app.selectors import session_keys, with_status

log = logging.getLogger(__name__)


def _steer(verb: str) -> Callable[[Callers, Sequence[Session], str], Told]:
    """Ask the service for each tenant's own; ids are names within a tenant."""

    def act(callers: Callers, rows: Sequence[Session], reason: str) -> Told:
        for tenant, own in by_tenant(rows).items():
            for part in parts(own, PART):
                ids = [row.session_id for row in part]
                answer = services.sessions_control(caller=callers(tenant), verb=verb, session_ids=ids, reason=reason)
                said = {one["session_id"]: one["outcome"] for one in answer["results"]}
                yield from ((row, said[row.session_id]) for row in part)

    return act


def _wish(session: Session) -> str:
    """What is wanted and since when: who resumes undoes the pause that they saw, not a later one."""
    at = session.desired_at
    return f"{session.desired}-{int(at.timestamp() * 1_000_000) if at else 0}"


PAUSE = Verb(
    name="pause",
    title="Pause",
    says="A turn that runs now ends by itself; nothing new starts until somebody resumes.",
    act=_steer("pause"),
    applies=lambda session: session.desired != "pause",
)
RESUME = Verb(
    name="resume",
    title="Resume",
    says="Its turns go on in their order.",
    act=_steer("resume"),
    applies=lambda session: session.desired == "pause",
    expects=_wish,
    needs_reason=False,
)
KILL = Verb(
    name="kill",
    title="Kill",
    says=(
        "What is queued is cancelled and what runs is told to stop; its result is not kept, and what it did outside"
        " stays done. Turns that are dispatched later run."
    ),
    act=_steer("kill"),
    applies=lambda session: session.head_seq is not None,
    destructive=True,
)


class StatusFilter(SimpleListFilter):
    title = "status"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(status, status.replace("_", " ")) for status in states.STATUSES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return with_status(queryset, self.value() or "") if self.value() else queryset


class SessionAdmin(ActingAdmin):
    """Sessions; the detail shows turns 50 at a time, oldest first. All acts go through the services, as REST's do."""

    noun = ("session", "sessions")
    name_field = "session_id"
    empty_words = "No session yet. The first dispatch opens one."
    most = MAX_STEERED
    verbs: ClassVar[dict[str, Verb]] = {"pause_sessions": PAUSE, "resume_sessions": RESUME, "kill_sessions": KILL}
    pause_sessions = offer("pause_sessions", PAUSE)
    resume_sessions = offer("resume_sessions", RESUME)
    kill_sessions = offer("kill_sessions", KILL)
    actions: ClassVar[list[str]] = list(verbs)
    list_display = ("session_id", "state_label", "wish", "domain", "tenant", "turn_number", "updated")
    list_filter = (StatusFilter,)
    ordering = ("-pk",)
    search_fields = ("session_id",)
    search_help_text = "Exact session id, or domain:NAME"
    change_form_outer_before_template = "fleet/session.html"
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

    def found(self, request: HttpRequest, queryset: QuerySet[Any], term: str) -> QuerySet[Any]:
        """Exact only: a part of an id would be looked for in every row."""
        if term.startswith("domain:"):
            return queryset.filter(domain=term.removeprefix("domain:"))
        return queryset.filter(pk__in=session_keys([term], tenants=staff_of(request).tenants))

    def domain_of(self, request: HttpRequest) -> str:
        """Only when the list is narrowed by nothing else."""
        term = request.GET.get("q", "").strip()
        return term.removeprefix("domain:") if term.startswith("domain:") and len(request.GET) == 1 else ""

    def page_context(self, request: HttpRequest, obj: Session) -> dict[str, Any]:
        may, staff = self.has_operate_permission(request), staff_of(request)
        return {
            "fleet_buttons": self.buttons(request, obj),
            "fleet_pk": obj.pk,
            "fleet_list_href": reverse("admin:sessions_app_session_changelist"),
            "fleet_why": _why(obj, staff),
            "fleet_wanted": _wanted(obj),
            "fleet_question": _question(obj, staff),
            "fleet_may_reply": may,
            "fleet_usage": usage_line(session_usage(obj.pk)),
            "fleet_timeline": session_timeline(obj, staff, before=request.GET.get("before", "")),
        }

    def get_urls(self) -> list[Any]:
        reply = path(
            "<path:object_id>/reply/",
            self.admin_site.admin_view(self.reply_view),
            name="sessions_app_session_reply",
        )
        return [reply, *super().get_urls()]

    def reply_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Answer the question that the form showed; another one that is open by now is left open."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if not self.has_operate_permission(request):
            raise PermissionDenied
        session = self.get_object(request, object_id)
        sent = {name: request.POST[name] for name in ("text", "choice") if request.POST.get(name)}
        try:
            body = read_input(ReplyBody, sent)
            open_now = Question.objects.still_open().filter(session=session).first()
            if open_now is not None and str(open_now.pk) != request.POST.get("question"):
                self.message_user(request, "Another question is open by now. Nothing was sent.", messages.WARNING)
            else:
                caller = caller_in(request, session.tenant)
                services.session_reply(caller=caller, session_id=session.session_id, text=body.text, choice=body.choice)
                LogEntry.objects.log_actions(user_id_of(request), [session], CHANGE, change_message="Reply: applied")
                self.message_user(request, "Sent: the turn goes on with it.", messages.SUCCESS)
        except DispatchError as refused:
            why = "; ".join(f"{name} {text}" for name, text in refused.fields.items()) or refused.message
            self.message_user(request, f"Reply: {why}. Nothing was sent.", messages.ERROR)
        return redirect("admin:sessions_app_session_change", session.pk)

    @column("Status", variants=VARIANTS)
    def state_label(self, obj: Session) -> str:
        return obj.status.replace("_", " ")

    @column("Wanted")
    def wish(self, obj: Session) -> str:
        return _wanted(obj) or "–"

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
        return json_for(reader_of(obj), obj.metadata)

    @column("State")
    def state_text(self, obj: Session) -> str:
        return json_for(reader_of(obj), obj.state)


def _why(session: Session, staff: Staff) -> dict[str, Any] | None:
    """Where its next turn stands, in the words of `explain`, and who holds it; None when nothing is unfinished."""
    if session.head_seq is None:
        return None
    try:
        head = WorkItem.objects.filter(session=session, session_seq=session.head_seq).first()
        if head is None:
            return {"words": "it is about to move on"}
        return {"words": explanation_for(staff, head), "job_id": head.job_id, "pk": head.pk, "lease": lease_of(head)}
    except Exception as error:
        log.warning("explanation not read", extra={"session": session.pk, "error": type(error).__name__})
        return {"words": "unknown: it could not be read"}


def _wanted(session: Session) -> str:
    """Who wants it paused or killed, since when and why, and whether its worker has seen it."""
    if session.desired == "run":
        return ""
    now = timezone.now()
    who = who_when_why(session.desired_by, session.desired_at, session.desired_reason, now)
    if session.stopped_at is not None:
        how = "stopped"
    elif session.status in ("pause_requested", "kill_requested"):
        how = "seen by its worker, still running" if session.seen_at is not None else "not yet seen by its worker"
    else:
        how = "in force"
    return f"{session.desired}{who} ({how})"


def _question(session: Session, staff: Staff) -> dict[str, Any] | None:
    asked = Question.objects.still_open().filter(session=session).first()
    if asked is None:
        return None
    return {
        "pk": asked.pk,
        "text": text_for(staff, asked.question),
        "choices": (asked.choices or []) if staff.may_read_content else [],
        "asked": moment(asked.asked_at),
    }
