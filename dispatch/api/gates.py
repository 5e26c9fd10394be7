"""Views of the pauses of claiming. Shutting and opening both take a reason, so both are POST with a body."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from dispatch import gatekeeping
from dispatch.api import docs
from dispatch.api.base import JSONView, body_of, caller_of
from dispatch.api.inputs import GateBody, NoQuery, read_query
from dispatch.inputs import read_input


class GatesView(JSONView):
    """List what is shut."""

    scope = "read"

    @extend_schema(**docs.GATES)
    def get(self, request: Request) -> Response:
        read_query(NoQuery, request.query_params)
        return Response(gatekeeping.gate_list(caller=caller_of(request)))


class ShutGateView(JSONView):
    """Pause claims."""

    scope = "operate"

    @extend_schema(**docs.SHUT)
    def post(self, request: Request) -> Response:
        read_query(NoQuery, request.query_params)
        sent = read_input(GateBody, body_of(request))
        return Response(gatekeeping.gate_shut(caller=caller_of(request), **_gate(sent)))


class OpenGateView(JSONView):
    """Let claims go on."""

    scope = "operate"

    @extend_schema(**docs.OPEN)
    def post(self, request: Request) -> Response:
        read_query(NoQuery, request.query_params)
        sent = read_input(GateBody, body_of(request))
        return Response(gatekeeping.gate_open(caller=caller_of(request), **_gate(sent)))


def _gate(sent: GateBody) -> dict[str, str]:
    return {"scope": sent.scope, "name": sent.name or "", "reason": sent.reason}
