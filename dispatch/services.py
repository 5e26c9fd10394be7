"""What callers may do. Each service checks, runs the authority's transition, and says what happened."""

from __future__ import annotations

import hashlib
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from django.db import transaction

from dispatch import selectors, states, wiring
from dispatch.access import Caller
from dispatch.authority.leases import fenced
from dispatch.authority.submit import NewItem, Submitted
from dispatch.errors import (
    DispatchError,
    Forbidden,
    IdempotencyConflict,
    Invalid,
    JobNotFound,
    NoQuestion,
    SessionExists,
    SessionNotFound,
    WorkerNotFound,
)
from dispatch.goaling import goal_of
from dispatch.models import DispatchWorker, KnownAgent, Question, WorkItem
from dispatch.parts import parts
from dispatch.ports import Lease
from dispatch.specs import DispatchSpec
from dispatch.webhooks.endpoints import callback_for
from dispatch.worker.inline import run_job
from sessions_app import services as session_services
from sessions_app.models import Session

DEFAULT_MAX_ATTEMPTS = 3
CONTROL_PART = 100  # sessions steered, audited and told of at once
_PREFIX = {states.ORCHESTRATOR_TASK: "orch", states.GOAL_LOOP: "goal"}


@dataclass(frozen=True, kw_only=True, slots=True)
class DispatchResult:
    """The handle, and how it came: new, replayed, coalesced, or run inline (then `inline` is the answer)."""

    handle: dict[str, Any]
    replayed: bool = False
    coalesced: bool = False
    inline: str | None = None


# -- dispatch ----------------------------------------------------------------------------------------------------------
def job_dispatch(*, caller: Caller, spec: DispatchSpec) -> DispatchResult:
    """Admit one job; a refusal leaves no row.

    Raises Invalid, IdempotencyConflict, SessionBusy, QueueFull, QueueUnavailable, StoreUnavailable.
    """
    inline = wiring.config().agent_dispatch_backend == "inline"
    item = _new_item(caller, spec, _known_agents([spec]))
    if inline:
        item = _inline_item(item, spec)
    (submitted,) = wiring.submit([item], parent=caller.traceparent)
    _refuse_conflict(item, submitted)
    handle = job_handle(submitted.job_id, submitted.session_id, item.kind)
    if inline and not submitted.existing:
        run_job(
            authority=wiring.authority(),
            registry=wiring.registry(),
            store=wiring.turn_store(),
            serves=wiring.serves(),
            job_id=submitted.job_id,
            ttl_s=wiring.config().claim_ttl_s,
            renew_s=wiring.config().renew_interval_s,
            tracer=wiring.tracer(),
        )
    return DispatchResult(
        handle=handle,
        replayed=submitted.existing,
        coalesced=submitted.coalesced,
        inline=f"Task dispatched. Job ID: {submitted.job_id}" if inline else None,
    )


def job_dispatch_many(*, caller: Caller, specs: Sequence[DispatchSpec | Invalid]) -> list[dict[str, Any]]:
    """Admit many; each has its own answer, in order. One bad body does not stop the others."""
    answers: list[dict[str, Any] | None] = [None] * len(specs)
    known = _known_agents([spec for spec in specs if isinstance(spec, DispatchSpec)])
    items: list[tuple[int, NewItem]] = []
    for place, spec in enumerate(specs):
        try:
            if isinstance(spec, Invalid):
                raise spec
            items.append((place, _new_item(caller, spec, known)))
        except Invalid as error:
            answers[place] = error_body(error)
    if items:
        submitted_items = wiring.submit([item for _, item in items], parent=caller.traceparent)
        for (place, item), submitted in zip(items, submitted_items, strict=True):
            answers[place] = _answer(item, submitted)
    return [answer or {} for answer in answers]


def _answer(item: NewItem, submitted: Submitted) -> dict[str, Any]:
    if isinstance(submitted.error, DispatchError):
        return error_body(submitted.error)
    try:
        _refuse_conflict(item, submitted)
    except IdempotencyConflict as error:
        return error_body(error)
    handle = job_handle(submitted.job_id, submitted.session_id, item.kind)
    if submitted.existing:
        handle["replayed"] = True
    if submitted.coalesced:
        handle["coalesced"] = True
    return handle


def error_body(error: DispatchError) -> dict[str, Any]:
    """An error as REST shows it, inside a list of answers."""
    return {"status": "error", "code": error.code, "message": error.message, "fields": error.fields}


def child_dispatch(*, lease: Lease, job_key: str, body: dict[str, Any]) -> str:
    """Dispatch a child of a running turn, under its fence; the id derives from parent and key, so a repeat finds it."""
    spec = DispatchSpec.parse(body)
    caller = Caller(tenant=lease.tenant, name=lease.job_id, kind="system", scopes=frozenset({"dispatch"}))
    item = _new_item(caller, spec, _known_agents([spec]))
    job_id = _derived(item.kind, lease.job_id, str(lease.session_seq), job_key)
    session_id = spec.session_id or job_id
    item = replace(item, job_id=job_id, session_id=session_id, parent_item_id=lease.item_id, fingerprint=None)
    with fenced(lease):
        pass  # the child exists only if the parent still holds its turn
    (submitted,) = wiring.submit([item], parent=lease.traceparent)
    return submitted.job_id


def _derived(kind: str, *parts: str) -> str:
    digest = hashlib.sha256("\x00".join(parts).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{_PREFIX[kind]}-{digest[:32]}"


def _known_agents(specs: Sequence[DispatchSpec]) -> frozenset[str]:
    return known_agents({spec.agent_name or wiring.registry().default_name() for spec in specs})


def known_agents(names: Collection[str]) -> frozenset[str]:
    """Those of the names that this process's configuration has, or that any worker has ever announced."""
    registry = wiring.registry()
    here = {name for name in names if registry.get(name) is not None}
    missing = set(names) - here
    if missing:
        here |= set(KnownAgent.objects.filter(name__in=missing).values_list("name", flat=True))
    return frozenset(here)


def _new_item(caller: Caller, spec: DispatchSpec, known: frozenset[str]) -> NewItem:
    registry = wiring.registry()
    name = spec.agent_name or registry.default_name()
    if name not in known:
        raise Invalid(
            f"no agent named {name} is known",
            fields={"agent_name": "must be an agent of this configuration or one that a worker has announced"},
        )
    agent = registry.get(name)
    tenant = caller.tenant
    if spec.idempotency_key is None:
        job_id = f"{_PREFIX[spec.kind]}-{uuid.uuid4().hex}"
    else:
        job_id = _derived(spec.kind, tenant, spec.idempotency_key)
        _refuse_other_kind(spec, tenant)
    return NewItem(
        job_id=job_id,
        tenant=tenant,
        session_id=spec.session_id or job_id,
        kind=spec.kind,
        agent_name=name,
        priority=states.PRIORITIES.index(spec.priority),
        max_attempts=spec.max_attempts or (agent and agent.max_attempts) or DEFAULT_MAX_ATTEMPTS,
        on_worker_lost=spec.on_worker_lost or (agent and agent.on_worker_lost) or "retry",
        task=spec.task,
        run_at=spec.run_at,
        deadline=spec.deadline,
        payload=spec.payload,
        metadata=spec.metadata,
        goal=goal_of(spec),
        fingerprint=spec.fingerprint if spec.idempotency_key is not None else None,
        dependencies=spec.dependencies,
        on_busy=spec.on_busy,
        callback=None if spec.callback_url is None else callback_for(tenant, spec.callback_url),
    )


def _refuse_other_kind(spec: DispatchSpec, tenant: str) -> None:
    """A key's job id carries its kind; the same key for the other kind is another body, not another job."""
    others = [_derived(kind, tenant, spec.idempotency_key or "") for kind in states.KINDS if kind != spec.kind]
    if WorkItem.objects.filter(job_id__in=others).exists():
        raise IdempotencyConflict(fields={"kind": "differs from the first request with this key"})


def _inline_item(item: NewItem, spec: DispatchSpec) -> NewItem:
    late = dict.fromkeys(("run_at", "dependencies"), "is not possible with AGENT_DISPATCH_BACKEND=inline")
    if wrong := {name: text for name, text in late.items() if getattr(spec, name)}:
        raise Invalid("an inline dispatch runs at once", fields=wrong)
    live = WorkItem.objects.filter(
        session__tenant=item.tenant, session__session_id=item.session_id, status__in=sorted(states.LIVE)
    )
    for pk in live.values_list("pk", flat=True):
        wiring.authority().transitions.rescue_item(pk)
    return replace(item, on_busy="reject")


def _refuse_conflict(item: NewItem, submitted: Submitted) -> None:
    if not submitted.existing or item.fingerprint is None:
        return
    first = submitted.fingerprint or {}
    fields = sorted(k for k in {*first, *item.fingerprint} if first.get(k) != item.fingerprint.get(k))
    if fields:
        raise IdempotencyConflict(fields=dict.fromkeys(fields, "differs from the first request with this key"))


def job_handle(job_id: str, session_id: str, kind: str) -> dict[str, Any]:
    """What a dispatch leaves in its caller's hand."""
    return {
        "job_id": job_id,
        "session_id": session_id,
        "kind": kind,
        "dispatch": "queued",
        "status": "pending",
        "status_url": "/api/graph/jobs",
        "status_request": {"action": "status", "job_id": job_id},
    }


# -- a job's life ------------------------------------------------------------------------------------------------------
def job_cancel(*, caller: Caller, job_id: str, reason: str = "") -> dict[str, Any]:
    """Cancel: `done` (it will not run again), `requested` (its worker is told), `too_late`. Audited."""
    item = _find(caller, job_id, "cancel", reason)
    noted = _noted(caller, "cancel", "job", {item.pk: (job_id, item.tenant)}, reason)
    how = wiring.authority().transitions.cancel([item.pk], code=states.ErrorCode.CANCELLED, reason=reason, noted=noted)
    if item.pk not in how:  # retention took it a moment ago
        raise JobNotFound(job_id)
    status = WorkItem.objects.values_list("status", flat=True).get(pk=item.pk)
    return {"job_id": job_id, "status": states.public_status(status), "cancel": how[item.pk]}


def job_retry(*, caller: Caller, job_id: str, deadline: datetime | None = None, reason: str = "") -> dict[str, Any]:
    """Make the same job ready again at the end of its session. Raises NotRetryable, QueueFull, QueueUnavailable."""
    item = _find(caller, job_id, "retry", reason)
    seconds = (deadline - datetime.now(UTC)).total_seconds() if deadline else None
    noted = _noted(caller, "retry", "job", {item.pk: (job_id, item.tenant)}, reason)
    wiring.authority().retry(item.pk, deadline_s=seconds, noted=noted)
    session_id = Session.objects.values_list("session_id", flat=True).get(pk=item.session_id)
    return job_handle(job_id, session_id, item.kind)


def _find(caller: Caller, job_id: str, verb: str, reason: str) -> WorkItem:
    try:
        return selectors.find_job(caller, job_id)
    except JobNotFound:
        audit(caller, verb, "job", job_id, tenant=caller.tenant, reason=reason, result="not_found")
        raise


# -- sessions ----------------------------------------------------------------------------------------------------------
def session_open(*, caller: Caller, session_id: str, metadata: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Open a session before its first turn. Raises SessionExists."""
    if not session_services.session_open(
        tenant=caller.tenant, session_id=session_id, metadata=metadata, state=state, now=datetime.now(UTC)
    ):
        raise SessionExists(f"session {session_id} exists already")
    return selectors.session_get(caller=caller, session_id=session_id)


def session_reply(*, caller: Caller, session_id: str, text: str | None, choice: str | None) -> dict[str, Any]:
    """Answer the open question of a session; its turn goes on. Raises SessionNotFound, NoQuestion, Invalid."""
    try:
        session = selectors.find_session(caller, session_id)
    except SessionNotFound:
        audit(caller, "reply", "session", session_id, tenant=caller.tenant, result="not_found")
        raise
    question = Question.objects.still_open().filter(session=session).first()
    if question is None:
        raise NoQuestion
    answer = choice if choice is not None else text
    if answer is None:
        raise Invalid("a reply has a text or a choice", fields={"text": "is missing"})
    if choice is not None and choice not in (question.choices or []):
        right = f"must be one of {', '.join(question.choices)}" if question.choices else "the question has no choices"
        raise Invalid("that is not one of the choices", fields={"choice": right})
    if choice is None and question.choices:
        raise Invalid("the question has choices", fields={"choice": f"must be one of {', '.join(question.choices)}"})
    noted = _noted(caller, "reply", "session", {question.work_item_id: (session_id, session.tenant)}, "")
    wiring.authority().transitions.reply(question.pk, answer=answer, by=caller.name, noted=noted)
    job_id = WorkItem.objects.values_list("job_id", flat=True).get(pk=question.work_item_id)
    return {"session_id": session_id, "job_id": job_id, "status": "pending"}


def sessions_control(
    *,
    caller: Caller,
    verb: str,
    session_ids: list[str] | None = None,
    domain: str | None = None,
    filter: dict[str, Any] | None = None,
    reason: str,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, Any]:
    """Pause, resume or kill sessions by id, domain or filter; what happened to each, nothing cut.

    It goes in parts, each audited in its own commit, so that what an interrupted call did is known; `told` is called
    after each with how many sessions are done, and of how many.
    """
    sessions = selectors.sessions_for_control(caller, session_ids=session_ids, domain=domain, filter=filter)
    transitions = wiring.authority().transitions
    act = {"pause": transitions.pause, "resume": transitions.resume, "kill": transitions.kill}[verb]
    names = {session.pk: (session.session_id, session.tenant) for session in sessions}
    results: list[tuple[str, str]] = []
    for part in parts(list(names), CONTROL_PART):
        noted = _noted(caller, verb, "session", names, reason)
        outcome = act(part, by=caller.name, reason=reason, noted=noted)
        # one that retention took a moment ago has nothing left to be steered
        results.extend((names[pk][0], outcome.get(pk, "already")) for pk in part)
        told(len(results), len(sessions))
    there = {session_id for session_id, _ in results}
    unknown = dict.fromkeys(session_id for session_id in session_ids or [] if session_id not in there)
    missing = {place: (session_id, caller.tenant) for place, session_id in enumerate(unknown)}
    _noted(caller, verb, "session", missing, reason)(dict.fromkeys(missing, "not_found"))
    results.extend((session_id, "not_found") for session_id in unknown)
    return {
        "results": [{"session_id": session_id, "outcome": what} for session_id, what in results],
        "counts": dict(Counter(what for _, what in results)),
    }


# -- workers -----------------------------------------------------------------------------------------------------------
def worker_drain(*, caller: Caller, worker_id: str, reason: str = "") -> dict[str, Any]:
    """Ask a worker's consumer to claim nothing more. Raises Forbidden, WorkerNotFound. Audited."""
    if not caller.platform:
        raise Forbidden("A worker serves every tenant; draining it takes a platform key.")
    with transaction.atomic():
        asked = DispatchWorker.objects.filter(worker_id=worker_id).update(draining=True)
        result = "requested" if asked else "not_found"
        audit(caller, "drain", "worker", worker_id, tenant=caller.tenant, reason=reason, result=result)
    if not asked:
        raise WorkerNotFound(f"no worker {worker_id[:200]}")
    return {"worker_id": worker_id, "draining": True}


def audit(caller: Caller, verb: str, object_type: str, object_id: str, **more: str) -> None:
    session_services.audit_write([_audited(caller, verb, object_type, object_id, **more)])


def _noted(
    caller: Caller, verb: str, object_type: str, names: Mapping[int, tuple[str, str]], reason: str
) -> Callable[[Mapping[int, str]], None]:
    """The audit of what a transition did, for it to write in its own commit; `names` are (id, tenant) by key."""

    def note(said: Mapping[int, str]) -> None:
        acts = [(*names[key], result) for key, result in said.items()]
        session_services.audit_write(
            [
                _audited(caller, verb, object_type, object_id, tenant=tenant, result=result, reason=reason)
                for object_id, tenant, result in acts
            ]
        )

    return note


def _audited(
    caller: Caller, verb: str, object_type: str, object_id: str, *, tenant: str, result: str, reason: str = ""
) -> session_services.Audited:
    return session_services.Audited(
        actor_kind=caller.kind,
        actor=caller.name,
        tenant=tenant,
        verb=verb,
        object_type=object_type,
        object_id=object_id,
        reason=reason,
        result=result,
        request_id=caller.request_id,
    )
