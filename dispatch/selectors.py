"""Reads for callers, in their tenant. Everything answered is JSON-ready; lease material never leaves."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import connection
from django.db.models import Q, QuerySet

from dispatch import states, wiring
from dispatch.access import Caller
from dispatch.clock import rfc3339
from dispatch.errors import Invalid, JobNotFound, SessionNotFound
from dispatch.explaining import explain
from dispatch.goal_reads import goals_of
from dispatch.models import Outcome, OutputChunk, Question, WorkItem, WorkItemDependency, WorkItemEvent
from dispatch.paging import decode_cursor, encode_cursor
from dispatch.parts import parts
from dispatch.usage import job_usage, session_usage
from dispatch.webhooks.selectors import deliveries_of
from dispatch.worker_registry import worker_ids
from sessions_app import states as session_states
from sessions_app.models import Session, Turn
from sessions_app.selectors import session_keys

MAX_CHUNKS = 500
FINDINGS_LIMIT = 4_000
WAIT_POLL_S = (0.02, 0.5)


# -- one job -----------------------------------------------------------------------------------------------------------
def _jobs(caller: Caller) -> QuerySet[WorkItem]:
    tenant = caller.scope_tenant
    return WorkItem.objects.all() if tenant is None else WorkItem.objects.filter(tenant=tenant)


def find_job(caller: Caller, job_id: str) -> WorkItem:
    """Raises JobNotFound, for another tenant's job too."""
    item = _jobs(caller).filter(job_id=job_id).first()
    if item is None:
        raise JobNotFound(job_id)
    return item


def _outcomes(items: Sequence[WorkItem]) -> dict[int, Outcome]:
    """The current outcome of each: that of its own epoch."""
    ended = {item.pk: item.epoch for item in items if item.status in states.TERMINAL}
    found = Outcome.objects.filter(work_item_id__in=list(ended))
    return {o.work_item_id: o for o in found if ended[o.work_item_id] == o.epoch}


def _error(outcome: Outcome | None) -> dict[str, str] | None:
    if outcome is None or outcome.status == states.SUCCEEDED:
        return None
    return {"code": outcome.error_code, "message": outcome.error_message}


def job_status(*, caller: Caller, job_id: str) -> dict[str, Any]:
    """Exactly kind, status and payload_ref, plus result_ref once there is one."""
    item = find_job(caller, job_id)
    answer = {"kind": item.kind, "status": states.public_status(item.status), "payload_ref": item.job_id}
    outcome = _outcomes([item]).get(item.pk)
    if outcome is not None:
        answer["result_ref"] = f"outcome:{outcome.pk}"
    return answer


def job_wait(*, caller: Caller, job_id: str, timeout_s: float) -> dict[str, Any]:
    """As job_status, as soon as the job has ended, or when the time is over. Holds no connection while it waits."""
    end = time.monotonic() + timeout_s
    pause, most = WAIT_POLL_S
    while True:
        answer = job_status(caller=caller, job_id=job_id)
        left = end - time.monotonic()
        if answer["status"] in states.TERMINAL or left <= 0:
            return answer
        if connection.vendor == "postgresql" and not connection.in_atomic_block:
            connection.close()
        time.sleep(min(pause, left))
        pause = min(pause * 1.5, most)


def job_result(*, caller: Caller, job_id: str) -> dict[str, Any]:
    item = find_job(caller, job_id)
    outcome = _outcomes([item]).get(item.pk)
    return {
        "job_id": item.job_id,
        "status": states.public_status(item.status),
        "result": outcome.result if outcome else None,
        "error": _error(outcome),
        "attempt": item.attempt,
        "finished_at": rfc3339(item.finished_at),
        "usage": job_usage(item.pk),
    }


def job_explain(*, caller: Caller, job_id: str) -> dict[str, Any]:
    """Why is my turn not running?"""
    return explain(find_job(caller, job_id))


def job_events(*, caller: Caller, job_id: str) -> dict[str, Any]:
    item = find_job(caller, job_id)
    return {"job_id": item.job_id, "events": _events(item)}


def _events(item: WorkItem) -> list[dict[str, Any]]:
    return [
        {
            "at": rfc3339(event.at),
            "event": event.event,
            "from": event.from_status or None,
            "to": event.to_status or None,
            "attempt": event.attempt,
            "worker": _worker_reference(event.worker),
            "reason": event.reason or None,
        }
        for event in WorkItemEvent.objects.filter(work_item=item).order_by("id")
    ]


def _worker_reference(token: str) -> str | None:
    """Enough to tell workers apart, too little to forge a fence."""
    return token[:8] if token else None


def job_get(*, caller: Caller, job_id: str) -> dict[str, Any]:
    item = find_job(caller, job_id)
    (job,) = _job_dicts([item])
    outcome = _outcomes([item]).get(item.pk)
    return {
        **job,
        "result": outcome.result if outcome else None,
        "usage": job_usage(item.pk),
        "explain": explain(item),
        "events": _events(item),
        "deliveries": deliveries_of(item),
    }


def _job_dicts(items: Sequence[WorkItem]) -> list[dict[str, Any]]:
    outcomes = _outcomes(items)
    sessions = dict(Session.objects.filter(pk__in={i.session_id for i in items}).values_list("pk", "session_id"))
    parents: dict[int, list[str]] = {}
    rows = WorkItemDependency.objects.filter(work_item_id__in=[i.pk for i in items], kind="depends").order_by("id")
    for pk, job_id in rows.values_list("work_item_id", "parent__job_id"):
        parents.setdefault(pk, []).append(job_id)
    jobs, goals = [], goals_of(items)
    for item in items:
        outcome = outcomes.get(item.pk)
        job = {
            "job_id": item.job_id,
            "session_id": sessions.get(item.session_id, item.job_id),
            "kind": item.kind,
            "agent_name": item.agent_name,
            "task": item.task,
            "status": states.public_status(item.status),
            "priority": states.PRIORITIES[item.priority],
            "session_seq": item.session_seq,
            "attempt": item.attempt,
            "max_attempts": item.max_attempts,
            "dependencies": parents.get(item.pk, []),
            "metadata": item.metadata,
            "created_at": rfc3339(item.created_at),
            "run_at": rfc3339(item.run_at),
            "deadline": rfc3339(item.deadline),
            "started_at": rfc3339(item.started_at),
            "finished_at": rfc3339(item.finished_at),
            "cancel_requested_at": rfc3339(item.cancel_requested_at),
            "cancel_seen_at": rfc3339(item.cancel_seen_at),
            "stopped_at": rfc3339(item.stopped_at),
            "payload_ref": item.job_id,
            "result_ref": f"outcome:{outcome.pk}" if outcome else None,
            "error": _error(outcome),
        }
        if item.pk in goals:
            job["goal"] = goals[item.pk]
        jobs.append(job)
    return jobs


def job_chunks(*, caller: Caller, job_id: str, after: int) -> list[dict[str, Any]]:
    """Stored output after an id, in order, with the `epoch` of the run that said it in the data."""
    rows = OutputChunk.objects.filter(work_item=find_job(caller, job_id), pk__gt=after).order_by("pk")[:MAX_CHUNKS]
    return [
        {"id": row.pk, "kind": row.kind, "data": {**row.data, "epoch": row.epoch}, "at": rfc3339(row.at)}
        for row in rows
    ]


# -- many --------------------------------------------------------------------------------------------------------------
def job_list(
    *,
    caller: Caller,
    status: str | None = None,
    session_id: str | None = None,
    agent_name: str | None = None,
    kind: str | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> dict[str, Any]:
    """Newest first, by keyset."""
    jobs = _jobs(caller)
    if status is not None:
        jobs = jobs.filter(status__in=states.stored_statuses(status))
    if session_id is not None:
        jobs = jobs.filter(session_id__in=_session_keys(caller, [session_id]))
    if agent_name is not None:
        jobs = jobs.filter(agent_name=agent_name)
    if kind is not None:
        jobs = jobs.filter(kind=kind)
    before = decode_cursor("job", cursor)
    if before is not None:
        jobs = jobs.filter(pk__lt=before)
    page, following = page_of(jobs.order_by("-pk"), limit)
    return {"jobs": _job_dicts(page), "next_cursor": encode_cursor("job", page[-1].pk) if following else None}


def page_of(rows: QuerySet[Any], limit: int) -> tuple[list[Any], bool]:
    """The first rows, and whether more follow."""
    found = list(rows[: limit + 1])
    return found[:limit], len(found) > limit


# -- sessions ----------------------------------------------------------------------------------------------------------
def _sessions(caller: Caller) -> QuerySet[Session]:
    tenant = caller.scope_tenant
    return Session.objects.all() if tenant is None else Session.objects.filter(tenant=tenant)


def _session_keys(caller: Caller, session_ids: Sequence[str]) -> list[int]:
    tenant = caller.scope_tenant
    return session_keys(session_ids, tenants=None if tenant is None else [tenant])


def find_session(caller: Caller, session_id: str) -> Session:
    """The caller's own session of that id first; a platform caller finds another tenant's. Raises SessionNotFound."""
    found = Session.objects.filter(pk__in=_session_keys(caller, [session_id])).order_by("pk")
    session = next((one for one in found if one.tenant == caller.tenant), next(iter(found), None))
    if session is None:
        raise SessionNotFound(f"Session {session_id[:64]} not found")
    return session


def sessions_for_control(
    caller: Caller, *, session_ids: Sequence[str] | None, domain: str | None, filter: dict[str, Any] | None
) -> list[Session]:
    """Whom pause, resume and kill touch: all that match, in the caller's tenant."""
    sessions = _sessions(caller).order_by("pk")
    if session_ids is not None:
        wanted = list(dict.fromkeys(session_ids))
        return [s for part in parts(wanted, 500) for s in sessions.filter(pk__in=_session_keys(caller, part))]
    if domain is not None:
        return list(sessions.filter(domain=domain))
    wanted_filter = filter or {}
    if status := wanted_filter.get("status"):
        sessions = sessions.filter(status=status)
    if name := wanted_filter.get("domain"):
        sessions = sessions.filter(domain=name)
    if agent := wanted_filter.get("agent_name"):
        busy = WorkItem.objects.filter(agent_name=agent, finished_at__isnull=True)
        sessions = sessions.filter(pk__in=busy.values("session_id"))
    return list(sessions)


def session_list(
    *,
    caller: Caller,
    status: str | None = None,
    domain: str | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> dict[str, Any]:
    """Newest first, by keyset."""
    sessions = _sessions(caller)
    if status is not None:
        if status not in session_states.STATUSES:
            raise Invalid(
                "unknown session status", fields={"status": f"must be one of {', '.join(session_states.STATUSES)}"}
            )
        sessions = sessions.filter(status=status)
    if domain is not None:
        sessions = sessions.filter(domain=domain)
    before = decode_cursor("session", cursor)
    if before is not None:
        sessions = sessions.filter(pk__lt=before)
    page, following = page_of(sessions.order_by("-pk"), limit)
    questions, workers = _open_questions(page), worker_ids(session.seen_by for session in page)
    return {
        "sessions": [_session_dict(session, questions.get(session.pk), workers, state=False) for session in page],
        "next_cursor": encode_cursor("session", page[-1].pk) if following else None,
    }


def _open_questions(sessions: Sequence[Session]) -> dict[int, Question]:
    asking = Question.objects.still_open().filter(session_id__in=[s.pk for s in sessions])
    return {question.session_id: question for question in asking}


def session_get(*, caller: Caller, session_id: str) -> dict[str, Any]:
    session = find_session(caller, session_id)
    told = _session_dict(session, _open_questions([session]).get(session.pk), worker_ids([session.seen_by]))
    return {**told, "usage": session_usage(session.pk)}


def _session_dict(
    session: Session, question: Question | None, workers: Mapping[str, str], *, state: bool = True
) -> dict[str, Any]:
    answer = {
        "session_id": session.session_id,
        "status": session.status,
        "domain": session.domain,
        "metadata": session.metadata,
        "state": session.state,
        "turns": session.turn_number,
        "needs_input": _question_dict(question),
        "desired": {
            "wish": session.desired,
            "by": session.desired_by or None,
            "reason": session.desired_reason or None,
            "at": rfc3339(session.desired_at),
            "seen_at": rfc3339(session.seen_at),
            "seen_by": workers.get(session.seen_by or "") or _worker_reference(session.seen_by or ""),
            "stopped_at": rfc3339(session.stopped_at),
        },
        "created_at": rfc3339(session.created_at),
        "updated_at": rfc3339(session.updated_at),
    }
    if not state:
        del answer["state"]
    return answer


def _question_dict(question: Question | None) -> dict[str, Any] | None:
    if question is None:
        return None
    job_id = WorkItem.objects.values_list("job_id", flat=True).get(pk=question.work_item_id)
    return {
        "job_id": job_id,
        "question": question.question,
        "choices": question.choices,
        "asked_at": rfc3339(question.asked_at),
        "answer_by": rfc3339(question.answer_by),
        "default": question.default_answer,
    }


def session_turns(*, caller: Caller, session_id: str, limit: int = 100, cursor: str | None = None) -> dict[str, Any]:
    """One entry per job in order of its place, with its latest run."""
    session = find_session(caller, session_id)
    items = WorkItem.objects.filter(session=session)
    after = decode_cursor("turn", cursor)
    if after is not None:
        items = items.filter(session_seq__gt=after)
    page, following = page_of(items.order_by("session_seq"), limit)
    outcomes = _outcomes(page)
    numbers: dict[int, int] = {}
    for pk, number in (
        Turn.objects.filter(session=session, work_item_id__in=[i.pk for i in page])
        .order_by("epoch")
        .values_list("work_item_id", "turn_number")
    ):
        numbers[pk] = number
    turns = []
    for item in page:
        outcome = outcomes.get(item.pk)
        running = item.status in states.LIVE
        turns.append(
            {
                "turn_number": session.turn_number + 1 if running else numbers.get(item.pk),
                "job_id": item.job_id,
                "agent_name": item.agent_name,
                "task": item.task,
                "result": outcome.result if outcome else None,
                "error": _error(outcome),
                "status": states.public_status(item.status),
                "attempt": item.attempt,
                "started_at": rfc3339(item.started_at),
                "finished_at": rfc3339(item.finished_at),
            }
        )
    return {"turns": turns, "next_cursor": encode_cursor("turn", page[-1].session_seq) if following else None}


# -- health ------------------------------------------------------------------------------------------------------------
def convergence_findings() -> dict[str, int]:
    """What the ticks should have mended: {label: count}, bounded; empty when state and queue agree."""
    findings: dict[str, int] = {}
    now = datetime.now(UTC)
    late = now.timestamp() - 2 * settings.FLEETSITE.tick_s
    live = WorkItem.objects.filter(status__in=sorted(states.LIVE))
    lost = Q(lease_expires_at__isnull=True) | Q(lease_expires_at__lt=datetime.fromtimestamp(late, UTC))
    if count := live.filter(lost)[:FINDINGS_LIMIT].count():
        findings["leases_expired"] = count
    astray = wiring.authority().astray(limit=FINDINGS_LIMIT)
    return findings | {label: len(ids) for label, ids in astray.items()}
