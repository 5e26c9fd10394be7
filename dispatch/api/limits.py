"""Views of the limits of claiming. Setting and clearing both take a reason, so both are POST with a body."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from dispatch import limiting
from dispatch.api import docs
from dispatch.api.base import JSONView, body_of, caller_of
from dispatch.api.inputs import LimitBody, LimitName, NoQuery, read_query
from dispatch.inputs import read_input


class LimitsView(JSONView):
    """List the limits."""

    scope = "read"

    @extend_schema(**docs.LIMITS)
    def get(self, request: Request) -> Response:
        read_query(NoQuery, request.query_params)
        return Response(limiting.limit_list(caller=caller_of(request)))


class SetLimitView(JSONView):
    """Limit an agent or a tenant."""

    scope = "operate"

    @extend_schema(**docs.SET_LIMIT)
    def post(self, request: Request) -> Response:
        read_query(NoQuery, request.query_params)
        sent = read_input(LimitBody, body_of(request))
        return Response(limiting.limit_set(caller=caller_of(request), **sent.model_dump()))


class ClearLimitView(JSONView):
    """Take a limit away."""

    scope = "operate"

    @extend_schema(**docs.CLEAR_LIMIT)
    def post(self, request: Request) -> Response:
        read_query(NoQuery, request.query_params)
        sent = read_input(LimitName, body_of(request))
        return Response(limiting.limit_clear(caller=caller_of(request), **sent.model_dump()))
