"""Views of schedules, one per operation."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from dispatch.api.base import body_of, caller_of
from dispatch.api.inputs import NoQuery, Page, read_query
from dispatch.inputs import read_input
from dispatch.schedules import selectors, services
from dispatch.schedules.specs import RunBody, SwitchBody
from fleet.api import schedule_docs as docs
from fleet.api.views import FleetView


class SchedulesBase(FleetView):
    """Reading takes `read`, everything else `operate`."""

    def required_scope(self, request: Request) -> str | None:
        return "read" if request.method in ("GET", "HEAD") else "operate"


class SchedulesView(SchedulesBase):
    """List schedules; make one."""

    @extend_schema(**docs.LIST)
    def get(self, request: Request) -> Response:
        query = read_query(Page, request.query_params)
        return Response(selectors.schedule_list(caller=caller_of(request), limit=query.limit, cursor=query.cursor))

    @extend_schema(**docs.CREATE)
    def post(self, request: Request) -> Response:
        read_query(NoQuery, request.query_params)
        schedule, new = services.schedule_create(caller=caller_of(request), body=body_of(request))
        return Response(schedule, status=201 if new else 200)


class ScheduleView(SchedulesBase):
    """Show, change or remove one schedule."""

    @extend_schema(**docs.GET)
    def get(self, request: Request, name: str) -> Response:
        read_query(NoQuery, request.query_params)
        return Response(selectors.schedule_get(caller=caller_of(request), name=name))

    @extend_schema(**docs.CHANGE)
    def patch(self, request: Request, name: str) -> Response:
        read_query(NoQuery, request.query_params)
        return Response(services.schedule_change(caller=caller_of(request), name=name, change=body_of(request)))

    @extend_schema(**docs.REMOVE)
    def delete(self, request: Request, name: str) -> Response:
        read_query(NoQuery, request.query_params)
        services.schedule_remove(caller=caller_of(request), name=name)
        return Response(status=204)


class ScheduleRunView(SchedulesBase):
    """One run now."""

    @extend_schema(**docs.RUN)
    def post(self, request: Request, name: str) -> Response:
        read_query(NoQuery, request.query_params)
        sent = read_input(RunBody, given(request))
        handle, new = services.schedule_run(
            caller=caller_of(request), name=name, reason=sent.reason, key=sent.idempotency_key
        )
        return Response(handle, status=202) if new else Response({**handle, "replayed": True})


class SchedulePauseView(SchedulesBase):
    """Turn it off."""

    @extend_schema(**docs.PAUSE)
    def post(self, request: Request, name: str) -> Response:
        read_query(NoQuery, request.query_params)
        sent = read_input(SwitchBody, given(request))
        return Response(services.schedule_pause(caller=caller_of(request), name=name, reason=sent.reason))


class ScheduleResumeView(SchedulesBase):
    """Turn it on again."""

    @extend_schema(**docs.RESUME)
    def post(self, request: Request, name: str) -> Response:
        read_query(NoQuery, request.query_params)
        sent = read_input(SwitchBody, given(request))
        return Response(services.schedule_resume(caller=caller_of(request), name=name, reason=sent.reason))


def given(request: Request) -> dict[str, Any]:
    """The body; one may be left out where no field is needed."""
    return body_of(request) or {}
