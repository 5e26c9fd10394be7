"""How each operation of the fleet stands in the OpenAPI document: the keyword arguments of its `extend_schema`."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse
from pydantic import BaseModel

from dispatch.api import inputs, outputs
from fleet.autoscale import AutoscaleBody, AutoscaleQuery
from fleet.topology import HealthBody, TopologyBody, TopologyQuery


class Ready(BaseModel):
    """A probe's whole answer."""

    ready: bool


class WorkerDrained(BaseModel):
    """The worker claims nothing more and ends when its turns have ended."""

    worker_id: str
    draining: bool


_REFUSALS: dict[Any, Any] = {
    401: OpenApiResponse(outputs.Refused, "`unauthenticated`"),
    403: OpenApiResponse(outputs.Refused, "`forbidden`: the key's scopes do not allow it"),
}
_INVALID: dict[Any, Any] = {400: OpenApiResponse(outputs.Refused, "`invalid`, with the wrong `fields`")}


def query_parameters(model: type[BaseModel]) -> list[OpenApiParameter]:
    """The fields of a query model as parameters of the query string."""
    known = model.model_json_schema()["properties"]
    return [
        OpenApiParameter(
            name,
            type=_parameter_schema(known[name]),
            location=OpenApiParameter.QUERY,
            required=info.is_required(),
            description=info.description or "",
        )
        for name, info in model.model_fields.items()
    ]


def _parameter_schema(schema: dict[str, Any]) -> dict[str, Any]:
    options = [option for option in schema.get("anyOf", [schema]) if option.get("type") != "null"]
    return {key: value for key, value in options[0].items() if key not in ("title", "description")}


HEALTH: dict[str, Any] = {
    "operation_id": "fleet_health",
    "tags": ["fleet"],
    "summary": "Whether the fleet's numbers can be believed, and its totals",
    "responses": {
        200: OpenApiResponse(HealthBody, "The evidence is healthy"),
        503: OpenApiResponse(HealthBody, "It is not: what could not be read is null"),
        **_REFUSALS,
    },
}
TOPOLOGY: dict[str, Any] = {
    "operation_id": "fleet_topology",
    "tags": ["fleet"],
    "summary": "What runs where",
    "parameters": query_parameters(TopologyQuery),
    "responses": {200: OpenApiResponse(TopologyBody, "A page of sessions, goals, workers"), **_INVALID, **_REFUSALS},
}
AUTOSCALE: dict[str, Any] = {
    "operation_id": "fleet_autoscale",
    "tags": ["fleet"],
    "summary": "How many workers the work asks for",
    "description": "`desired` is what KEDA's metrics-api scaler reads.",
    "parameters": query_parameters(AutoscaleQuery),
    "responses": {
        200: OpenApiResponse(AutoscaleBody, "The wanted workers"),
        503: OpenApiResponse(AutoscaleBody, "Refused: the evidence is not healthy"),
        **_INVALID,
        **_REFUSALS,
    },
}
DRAIN: dict[str, Any] = {
    "operation_id": "fleet_worker_drain",
    "tags": ["fleet"],
    "summary": "Let a worker end its turns and claim nothing more",
    "parameters": [OpenApiParameter("worker_id", OpenApiTypes.STR, OpenApiParameter.PATH)],
    "request": {"application/json": inputs.DrainBody},
    "responses": {
        200: OpenApiResponse(WorkerDrained, "It drains"),
        404: OpenApiResponse(outputs.Refused, "`not_found`"),
        **_INVALID,
        **_REFUSALS,
    },
}
METRICS: dict[str, Any] = {
    "operation_id": "metrics",
    "tags": ["fleet"],
    "summary": "Prometheus metrics; those of the whole store for a platform key only",
    "responses": {(200, "text/plain"): OpenApiTypes.STR, **_REFUSALS},
}
ALIVE: dict[str, Any] = {
    "operation_id": "alive",
    "tags": ["probes"],
    "summary": "The process answers",
    "auth": [],
    "responses": OpenApiResponse(Ready, "It is alive; no database was asked"),
}
READY: dict[str, Any] = {
    "operation_id": "ready",
    "tags": ["probes"],
    "summary": "The evidence's ready flag",
    "auth": [],
    "responses": {200: OpenApiResponse(Ready, "Ready"), 503: OpenApiResponse(Ready, "Not ready")},
}
