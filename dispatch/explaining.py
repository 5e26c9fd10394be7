"""Why is my turn not running? One sentence, from the same reasons that a claim is refused with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import Q

from dispatch import states
from dispatch.goal_reads import iteration_words
from dispatch.models import ClaimGate, ClaimLimit, DispatchWorker, Question, WorkItem, WorkItemDependency, WorkItemEvent
from dispatch.room import limit_words
from dispatch.states import Refusal
from dispatch.wording import gate_words, span, who_when_why
from dispatch.worker_registry import worker_ids
from sessions_app.models import Session

CLAIMABLE = "claimable"
_FAR = timedelta(hours=2)


def explain(item: WorkItem) -> dict[str, Any]:
    """{"runnable", "reason", "detail", "blocked_by", "since"}; the reason is a Refusal, or `claimable`."""
    now = datetime.now(UTC)
    reason, detail, blocked_by = _explain(item, now)
    moves = WorkItemEvent.objects.filter(work_item=item).exclude(event=states.REMINDER)
    last = moves.order_by("-id").values_list("at", flat=True).first()
    since = last or item.created_at
    return {
        "runnable": reason == CLAIMABLE,
        "reason": reason,
        "detail": detail,
        "blocked_by": blocked_by,
        "since": since.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }


def _explain(item: WorkItem, now: datetime) -> tuple[str, str, str | None]:
    if item.status in states.TERMINAL:
        return Refusal.TERMINAL, f"it has ended as {item.status}", None
    if item.status in states.LIVE:
        why = f": {item.cancel_reason}" if item.cancel_reason else ""
        asked = f", and was asked to stop{why}" if item.cancel_requested_at else ""
        return Refusal.LEASED_ELSEWHERE, f"{_runs(item)}{iteration_words(item)}{asked}{_lease(item, now)}", None
    if item.status == states.SUSPENDED:
        return Refusal.SUSPENDED, f"it is suspended: {_waits_for(item)}", None
    if item.deadline is not None and item.deadline <= now:
        return Refusal.EXPIRED, f"its deadline passed {_ago(item.deadline, now)} ago; it is about to be cancelled", None
    if item.status == states.SUBMITTED:
        parent = _first_unmet(item)
        return Refusal.WAITING_DEPENDENCY, f"it waits for job {parent or 'a dependency'} to succeed", parent
    session = Session.objects.get(pk=item.session_id)
    if item.session_seq != session.head_seq:
        return _behind(item, session, now)
    if session.desired == "pause":
        how = who_when_why(session.desired_by, session.desired_at, session.desired_reason, now)
        return Refusal.SESSION_PAUSED, f"session {session.session_id} was paused{how}", None
    if shut := _shut(item, now):
        return Refusal.SESSION_PAUSED, shut, None
    if item.due_at is not None and item.due_at > now:
        what = "retries" if item.attempt or item.epoch else "is due"
        return Refusal.NOT_DUE, f"it {what} {_in(item.due_at, now)}", None
    return _workers(item, now)


def _runs(item: WorkItem) -> str:
    return f"it runs on {worker_ids([item.owner]).get(item.owner or '', 'a worker')}, attempt {item.attempt}"


def _lease(item: WorkItem, now: datetime) -> str:
    """A worker that lives renews its lease long before the end; that of a dead one runs out."""
    until = item.lease_expires_at
    if until is None:
        return ""
    if until <= now:
        return f"; its lease ended {_ago(until, now)} ago, and the next tick gives the turn to another"
    return f"; its lease lasts {_ahead(until, now)} if nobody renews it"


def _behind(item: WorkItem, session: Session, now: datetime) -> tuple[str, str, str | None]:
    in_front = WorkItem.objects.filter(session=session)
    head = None if session.head_seq is None else in_front.filter(session_seq=session.head_seq).first()
    if head is None:
        return Refusal.BEHIND_TURN, f"it waits for its place in session {session.session_id}", None
    return (
        Refusal.BEHIND_TURN,
        f"behind turn {head.session_seq} of session {session.session_id}, which {_does(head, session, now)}",
        head.job_id,
    )


def _does(head: WorkItem, session: Session, now: datetime) -> str:
    if head.status in states.LIVE:
        return "is running"
    if head.status == states.SUSPENDED:
        return _waits_for(head)
    if head.status == states.SUBMITTED:
        return f"waits for job {_first_unmet(head) or 'a dependency'}"
    if session.desired == "pause":
        return "is held by the session's pause"
    if shut := _shut(head, now):
        return f"waits, because {shut}"
    if head.due_at is not None and head.due_at > now:
        return f"{'retries' if head.attempt or head.epoch else 'is due'} {_in(head.due_at, now)}"
    return "has not started yet"


def _waits_for(item: WorkItem) -> str:
    if item.suspended_for == "input":
        question = Question.objects.still_open().filter(work_item=item).first()
        return f'waits for an answer to "{question.question[:200]}"' if question else "waits for an answer"
    return "waits for its child jobs"


def _first_unmet(item: WorkItem) -> str | None:
    parents = WorkItemDependency.objects.filter(work_item=item, kind="depends")
    unmet = parents.exclude(parent__status=states.SUCCEEDED).order_by("id")
    return unmet.values_list("parent__job_id", flat=True).first()


def _shut(item: WorkItem, now: datetime) -> str | None:
    """The widest gate that holds the item."""
    over = {"fleet": "", "kind": item.kind, "agent": item.agent_name, "tenant": item.tenant}
    shut = {(gate.scope, gate.name): gate for gate in ClaimGate.objects.filter(name__in=over.values())}
    gates = (shut.get(scope_and_name) for scope_and_name in over.items())
    return next((gate_words(gate, now) for gate in gates if gate is not None), None)


def _workers(item: WorkItem, now: datetime) -> tuple[str, str, str | None]:
    fresh = now - timedelta(seconds=settings.FLEETSITE.worker_stale_s)
    live = list(DispatchWorker.objects.filter(last_heartbeat__gte=fresh, draining=False).values_list("agents", "kinds"))
    if not live:
        return Refusal.NO_AGENT, "no worker is live", None
    able = sum(item.agent_name in agents and item.kind in kinds for agents, kinds in live)
    if able and (full := _limited(item, now)):
        return Refusal.LIMITED, full, None
    if able:
        return CLAIMABLE, f"it is ready and waits for a free slot; {able} live consumers run its agent", None
    if not any(item.kind in kinds for _, kinds in live):
        return Refusal.NO_AGENT, f"no live worker runs jobs of kind {item.kind}", None
    return Refusal.NO_AGENT, f"no live worker has the agent {item.agent_name}", None


def _limited(item: WorkItem, now: datetime) -> str | None:
    mine = Q(scope="agent", name=item.agent_name) | Q(scope="tenant", name=item.tenant)
    told = (limit_words(limit, now) for limit in ClaimLimit.objects.filter(mine).order_by("scope"))
    return next((words for words in told if words), None)


def _in(moment: datetime, now: datetime) -> str:
    """In 40 s; what is far away has its time too."""
    at = f", at {moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if moment - now > _FAR else ""
    return f"in {_ahead(moment, now)}{at}"


def _ahead(moment: datetime, now: datetime) -> str:
    return span(moment - now)


def _ago(moment: datetime, now: datetime) -> str:
    return span(now - moment)
