"""Views of the fleet, one per operation."""

from __future__ import annotations

from django.http import HttpResponse
from django.utils.cache import patch_cache_control
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from dispatch import services
from dispatch.api.base import JSONView, body_of, caller_of
from dispatch.api.inputs import DrainBody, NoQuery, read_query
from dispatch.inputs import read_input
from fleet.api import docs
from fleet.api.authentication import ApiKeyAuthentication
from fleet.autoscale import AutoscaleQuery, autoscale_read
from fleet.evidence import gather_ready
from fleet.metrics import exposition
from fleet.topology import TopologyQuery, health_read, topology_read


class FleetView(JSONView):
    """A view of the fleet; a key is the only way in."""

    authentication_classes = [ApiKeyAuthentication]
    scope = "read"


class OpenView(JSONView):
    """A probe: it asks for no key and tells nothing but one flag."""

    authentication_classes = []
    permission_classes = []
    throttle_classes = []


class HealthView(FleetView):
    """Whether the fleet's numbers can be believed, and its totals."""

    @extend_schema(**docs.HEALTH)
    def get(self, request: Request) -> Response:
        read_query(NoQuery, request.query_params)
        body = health_read(caller=caller_of(request))
        return _answer(body, status=200 if body.evidence.ready else 503)


class TopologyView(FleetView):
    """What runs where: a page of sessions under their domains, goals, workers."""

    @extend_schema(**docs.TOPOLOGY)
    def get(self, request: Request) -> Response:
        query = read_query(TopologyQuery, request.query_params)
        return _answer(topology_read(caller=caller_of(request), query=query), status=200)


class AutoscaleView(FleetView):
    """How many workers the work asks for."""

    @extend_schema(**docs.AUTOSCALE)
    def get(self, request: Request) -> Response:
        query = read_query(AutoscaleQuery, request.query_params)
        body = autoscale_read(caller=caller_of(request), query=query)
        return _answer(body, status=200 if body.evidence.autoscaling_ready else 503)


class DrainView(FleetView):
    """Let a worker finish what it runs and claim nothing more. Workers serve every tenant: for platform keys."""

    scope = "operate"

    @extend_schema(**docs.DRAIN)
    def post(self, request: Request, worker_id: str) -> Response:
        read_query(NoQuery, request.query_params)
        sent = read_input(DrainBody, body_of(request))
        return Response(services.worker_drain(caller=caller_of(request), worker_id=worker_id, reason=sent.reason))


class MetricsView(FleetView):
    """The metrics of this server; those of the whole store only for a platform key."""

    @extend_schema(**docs.METRICS)
    def get(self, request: Request) -> HttpResponse:
        body, content_type = exposition(
            accept=request.META.get("HTTP_ACCEPT", ""), store_wide=caller_of(request).platform
        )
        return HttpResponse(body, content_type=content_type)


class AliveView(OpenView):
    """The process answers. Touches no database."""

    @extend_schema(**docs.ALIVE)
    def get(self, request: Request) -> Response:
        return _unstored(Response({"ready": True}))


class ReadyView(OpenView):
    """The evidence's ready flag."""

    @extend_schema(**docs.READY)
    def get(self, request: Request) -> Response:
        ready = gather_ready().evidence.ready
        return _unstored(Response({"ready": ready}, status=200 if ready else 503))


def _answer(body: BaseModel, *, status: int) -> Response:
    return _unstored(Response(body.model_dump(mode="json"), status=status))


def _unstored(response: Response) -> Response:
    patch_cache_control(response, no_store=True)
    return response
