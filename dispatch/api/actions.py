"""POST /api/graph/jobs: the table of actions, each with its scope, its input and what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rest_framework.response import Response

from dispatch import selectors, services
from dispatch.access import Caller
from dispatch.api import inputs
from dispatch.api.base import known_job_id
from dispatch.errors import Invalid
from dispatch.inputs import read_input
from dispatch.iterations import job_iterations
from dispatch.specs import DispatchSpec
from dispatch.webhooks import services as webhooks

Handler = Callable[[Caller, dict[str, Any]], Response]


@dataclass(frozen=True, kw_only=True)
class Action:
    """`needs` is the scope of a key that may call it."""

    needs: str
    handle: Handler


def dispatch(caller: Caller, body: dict[str, Any]) -> Response:
    spec = DispatchSpec.parse(inputs.without_action(body))
    done = services.job_dispatch(caller=caller, spec=spec)
    if done.inline is not None:
        return Response(done.inline)
    if done.replayed:
        return Response({**done.handle, "replayed": True})
    if done.coalesced:
        return Response({**done.handle, "coalesced": True})
    return Response(done.handle, status=202)


def dispatch_many(caller: Caller, body: dict[str, Any]) -> Response:
    sent = read_input(inputs.DispatchManyAction, body, unchecked={"jobs"})
    answers = services.job_dispatch_many(caller=caller, specs=[_spec_or_refusal(item) for item in sent.jobs])
    return Response({"jobs": answers}, status=202)


def _spec_or_refusal(item: Any) -> DispatchSpec | Invalid:
    try:
        return DispatchSpec.parse(item)
    except Invalid as refused:
        return refused


def status(caller: Caller, body: dict[str, Any]) -> Response:
    sent = read_input(inputs.StatusAction, body)
    return Response(selectors.job_status(caller=caller, job_id=known_job_id(sent.job_id)))


def wait(caller: Caller, body: dict[str, Any]) -> Response:
    sent = read_input(inputs.WaitAction, body)
    return Response(selectors.job_wait(caller=caller, job_id=known_job_id(sent.job_id), timeout_s=sent.timeout_s))


def result(caller: Caller, body: dict[str, Any]) -> Response:
    sent = read_input(inputs.ResultAction, body)
    return Response(selectors.job_result(caller=caller, job_id=known_job_id(sent.job_id)))


def explain(caller: Caller, body: dict[str, Any]) -> Response:
    sent = read_input(inputs.ExplainAction, body)
    return Response(selectors.job_explain(caller=caller, job_id=known_job_id(sent.job_id)))


def events(caller: Caller, body: dict[str, Any]) -> Response:
    sent = read_input(inputs.EventsAction, body)
    return Response(selectors.job_events(caller=caller, job_id=known_job_id(sent.job_id)))


def iterations(caller: Caller, body: dict[str, Any]) -> Response:
    sent = read_input(inputs.IterationsAction, body)
    page = job_iterations(caller=caller, job_id=known_job_id(sent.job_id), limit=sent.limit, cursor=sent.cursor)
    return Response(page)


def list_jobs(caller: Caller, body: dict[str, Any]) -> Response:
    sent = read_input(inputs.ListAction, body)
    return Response(selectors.job_list(caller=caller, **sent.model_dump(exclude={"action"})))


def cancel(caller: Caller, body: dict[str, Any]) -> Response:
    sent = read_input(inputs.CancelAction, body)
    return Response(services.job_cancel(caller=caller, job_id=known_job_id(sent.job_id), reason=sent.reason))


def retry(caller: Caller, body: dict[str, Any]) -> Response:
    sent = read_input(inputs.RetryAction, body)
    deadline = sent.deadline(datetime.now(UTC))
    return Response(services.job_retry(caller=caller, job_id=known_job_id(sent.job_id), deadline=deadline), status=202)


def redeliver(caller: Caller, body: dict[str, Any]) -> Response:
    sent = read_input(inputs.RedeliverAction, body)
    job_id = known_job_id(sent.job_id)
    return Response(webhooks.redeliver(caller=caller, job_id=job_id, delivery_id=sent.delivery_id), status=202)


ACTIONS: Mapping[str, Action] = {
    "dispatch": Action(needs="dispatch", handle=dispatch),
    "dispatch_many": Action(needs="dispatch", handle=dispatch_many),
    "status": Action(needs="read", handle=status),
    "wait": Action(needs="read", handle=wait),
    "result": Action(needs="read", handle=result),
    "cancel": Action(needs="dispatch", handle=cancel),
    "retry": Action(needs="dispatch", handle=retry),
    "explain": Action(needs="read", handle=explain),
    "events": Action(needs="read", handle=events),
    "iterations": Action(needs="read", handle=iterations),
    "redeliver": Action(needs="dispatch", handle=redeliver),
    "list": Action(needs="read", handle=list_jobs),
}


def find_action(body: Mapping[str, Any]) -> Action | None:
    """The action that a body names, or None."""
    name = body.get("action")
    return ACTIONS.get(name) if isinstance(name, str) else None
