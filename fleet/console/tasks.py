"""Dispatching a task from the console: the same service as REST, in a tenant of the person's own, once a form."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from django.conf import settings
from django.contrib import messages
from django.contrib.admin.models import ADDITION, LogEntry
from django.core.exceptions import BadRequest, PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone

from dispatch import services, states, wiring
from dispatch.envelope import is_name
from dispatch.errors import DispatchError
from dispatch.models import DispatchWorker, KnownAgent, WorkItem
from dispatch.specs import DispatchSpec
from fleet.access import REQUEST_ID
from fleet.console.forms import user_id_of
from fleet.console.frame import for_staff, framed
from fleet.console.roles import caller_in, staff_of

AGENTS = 200  # names offered
FIELDS = ("tenant", "agent_name", "session_id", "priority", "task")


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    value: str
    words: str
    is_chosen: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskPage:
    """All that the template prints: what may be chosen, what was sent, and what is wrong with it."""

    tenants: list[Choice]  # empty for who sees all: they write one
    agents: list[Choice]
    priorities: list[Choice]
    request_id: str
    sent: dict[str, str]
    problems: dict[str, str] = field(default_factory=dict)
    problem: str = ""


@for_staff(lambda staff: staff.may_operate)
def task_view(request: HttpRequest) -> HttpResponse:
    if request.method == "POST":
        return _dispatch(request)
    sent = {name: request.GET.get(name, "")[:200] for name in FIELDS}
    return _form(request, uuid.uuid4().hex, {**sent, "priority": sent["priority"] or "normal"})


def _dispatch(request: HttpRequest) -> HttpResponse:
    """Admit the job and go to its page. The form's request id makes the job's id, so a form sent twice makes one."""
    staff, request_id = staff_of(request), request.POST.get("request_id", "")
    if not REQUEST_ID.fullmatch(request_id):
        raise BadRequest("request_id: must be that of the form")
    sent = {name: request.POST.get(name, "") for name in FIELDS}
    tenant = sent["tenant"].strip()
    if not is_name(tenant):
        return _form(request, request_id, sent, problems={"tenant": "must be the name of a tenant"})
    if not staff.sees(tenant):
        raise PermissionDenied
    body = {
        "task": sent["task"].replace("\r\n", "\n"),
        "agent_name": sent["agent_name"].strip(),
        "priority": sent["priority"],
        "idempotency_key": f"console:{user_id_of(request)}:{request_id}",
    }
    if sent["session_id"].strip():
        body["session_id"] = sent["session_id"].strip()
    try:
        made = services.job_dispatch(caller=caller_in(request, tenant), spec=DispatchSpec.parse(body))
    except DispatchError as refused:
        problem = "" if set(refused.fields) & set(FIELDS) else refused.message
        return _form(request, request_id, sent, problems=dict(refused.fields), problem=problem)
    item = WorkItem.objects.get(job_id=made.handle["job_id"])
    if made.replayed:
        messages.info(request, "This was dispatched before: here is its job.")
    else:
        note = f"Dispatched to {item.agent_name} (request {request_id})"
        LogEntry.objects.log_actions(user_id_of(request), [item], ADDITION, change_message=note, single_object=True)
        messages.success(request, "Dispatched. This page follows it.")
    return redirect("admin:dispatch_workitem_change", item.pk)


def _form(
    request: HttpRequest,
    request_id: str,
    sent: dict[str, str],
    *,
    problems: dict[str, str] | None = None,
    problem: str = "",
) -> HttpResponse:
    staff = staff_of(request)
    page = TaskPage(
        tenants=[] if staff.tenants is None else _choices(sorted(staff.tenants), sent["tenant"]),
        agents=_agents(sent["agent_name"]),
        priorities=_choices(states.PRIORITIES, sent["priority"]),
        request_id=request_id,
        sent=sent,
        problems=problems or {},
        problem=problem,
    )
    answer = framed(request, "fleet/task.html", "Dispatch a task", page)
    answer.status_code = 400 if problem or problems else 200
    return answer


def _choices(values: Iterable[str], chosen: str) -> list[Choice]:
    return [Choice(value=value, words=value, is_chosen=value == chosen) for value in values]


def _agents(chosen: str) -> list[Choice]:
    """Names that this configuration has or a worker has announced, and whether a live worker has them."""
    fresh = timezone.now() - timedelta(seconds=settings.FLEETSITE.worker_stale_s)
    live = DispatchWorker.objects.filter(last_heartbeat__gte=fresh, draining=False).values_list("agents", flat=True)
    served = {name for names in live for name in names}
    known = set(KnownAgent.objects.order_by("name").values_list("name", flat=True)[:AGENTS])
    names = sorted(known | set(wiring.registry().names()))
    default = Choice(value="", words=f"the default agent, {wiring.registry().default_name()}", is_chosen=not chosen)
    return [
        default,
        *(
            Choice(value=name, words=name if name in served else f"{name} – no live worker", is_chosen=name == chosen)
            for name in names
        ),
    ]
