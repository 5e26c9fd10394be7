"""Views of jobs: the list, the actions, one job, and its stream."""

from __future__ import annotations

from django.http import HttpResponseBase
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from dispatch import selectors
from dispatch.api import docs
from dispatch.api.actions import ACTIONS, find_action
from dispatch.api.base import JSONView, body_of, caller_of, known_job_id
from dispatch.api.inputs import JobListQuery, NoQuery, read_query
from dispatch.api.permissions import ANY_SCOPE
from dispatch.api.stream import JobStream, event_response, read_last_event_id
from dispatch.inputs import refusal


class JobsView(JSONView):
    """List jobs; act on jobs."""

    large_actions = frozenset({"dispatch_many"})

    def required_scope(self, request: Request) -> str | None:
        if request.method != "POST":
            return "read"
        action = find_action(body_of(request))
        return action.needs if action else ANY_SCOPE

    @extend_schema(**docs.JOB_LIST)
    def get(self, request: Request) -> Response:
        query = read_query(JobListQuery, request.query_params)
        return Response(selectors.job_list(caller=caller_of(request), **query.model_dump()))

    @extend_schema(**docs.JOB_ACTION)
    def post(self, request: Request) -> Response:
        read_query(NoQuery, request.query_params)
        action = find_action(body_of(request))
        if action is None:
            raise refusal({"action": f"must be one of {', '.join(ACTIONS)}"})
        return action.handle(caller_of(request), body_of(request))


class JobView(JSONView):
    """Show one job."""

    scope = "read"

    @extend_schema(**docs.JOB)
    def get(self, request: Request, job_id: str) -> Response:
        read_query(NoQuery, request.query_params)
        return Response(selectors.job_get(caller=caller_of(request), job_id=known_job_id(job_id)))


class JobStreamView(JSONView):
    """Follow one job by server-sent events."""

    scope = "read"

    @extend_schema(**docs.JOB_STREAM)
    def get(self, request: Request, job_id: str) -> HttpResponseBase:
        read_query(NoQuery, request.query_params)
        after = read_last_event_id(request.headers.get("Last-Event-ID"))
        caller, job = caller_of(request), known_job_id(job_id)
        stream = JobStream(
            job_id=job,
            read_status=lambda: str(selectors.job_status(caller=caller, job_id=job)["status"]),
            read_chunks=lambda after: selectors.job_chunks(caller=caller, job_id=job, after=after),
            after=after,
        )
        stream.look()  # 404 before the stream begins
        return event_response(iter(()) if request.method == "HEAD" else stream.events())
