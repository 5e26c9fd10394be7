"""How each operation stands in the OpenAPI document: the keyword arguments of its `extend_schema`."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from pydantic import BaseModel

from dispatch.api import inputs, outputs, steer_outputs

_JOB = "orch-4d1f0c0b6b5e4b7f9c1a2e3d4f5a6b7c"
_HANDLE: dict[str, Any] = {
    "job_id": _JOB,
    "session_id": _JOB,
    "kind": "orchestrator_task",
    "dispatch": "queued",
    "status": "pending",
    "status_url": "/api/graph/jobs",
    "status_request": {"action": "status", "job_id": _JOB},
}
_REFUSALS = {
    400: "`invalid`, with the wrong `fields`",
    401: "`unauthenticated`",
    403: "`forbidden`: the key's scopes do not allow it",
    413: "`too_large`: over 1 MiB (8 MiB for dispatch_many)",
    415: "`unsupported_media_type`: the body is not application/json",
    429: "`queue_full` or `rate_limited`, with `Retry-After`",
    503: "`queue_unavailable` or `store_unavailable`",
}


def _refusals(*codes: int) -> dict[Any, Any]:
    return {code: OpenApiResponse(outputs.Refused, _REFUSALS[code]) for code in (401, 403, 503, *codes)}


def _answer(model: type[BaseModel], description: str, example: Any = None) -> OpenApiResponse:
    examples = [] if example is None else [OpenApiExample(description, example, response_only=True)]
    return OpenApiResponse(model, description, examples)


def _query(model: type[BaseModel]) -> list[OpenApiParameter]:
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


_UNKNOWN_JOB = _answer(outputs.JobUnknown, "No such job", {"status": "not_found", "error": f"Job {_JOB} not found"})
_UNKNOWN_SESSION = OpenApiResponse(outputs.Refused, "`not_found`")
_JSON = "application/json"

JOB_LIST: dict[str, Any] = {
    "operation_id": "jobs_list",
    "tags": ["jobs"],
    "summary": "List jobs, newest first",
    "parameters": _query(inputs.JobListQuery),
    "responses": {200: _answer(outputs.JobPage, "A page of jobs"), **_refusals(400)},
}
JOB_ACTION: dict[str, Any] = {
    "operation_id": "jobs_act",
    "tags": ["jobs"],
    "summary": "Dispatch, follow, cancel or retry jobs",
    "description": "`action` says what to do; each action takes its own fields and no others.",
    "request": {_JSON: inputs.JobAction},
    "examples": [
        OpenApiExample(
            "Dispatch", {"action": "dispatch", "task": "Say hello", "dependencies": "[]"}, request_only=True
        ),
        OpenApiExample("Status", {"action": "status", "job_id": _JOB}, request_only=True),
    ],
    "responses": {
        200: _answer(
            outputs.ActionAnswer,
            "What was asked; a replayed or coalesced dispatch answers its handle",
            {"kind": "orchestrator_task", "status": "succeeded", "payload_ref": _JOB, "result_ref": "outcome:17"},
        ),
        202: _answer(outputs.Admitted, "Admitted", _HANDLE),
        **_refusals(400, 413, 415, 429),
        404: _UNKNOWN_JOB,
        409: OpenApiResponse(outputs.Refused, "`idempotency_conflict`, `session_busy` or `not_retryable`"),
    },
}
JOB: dict[str, Any] = {
    "operation_id": "jobs_get",
    "tags": ["jobs"],
    "summary": "Show one job",
    "parameters": [OpenApiParameter("job_id", OpenApiTypes.STR, OpenApiParameter.PATH)],
    "responses": {200: _answer(outputs.Job, "The job"), **_refusals(400), 404: _UNKNOWN_JOB},
}
JOB_STREAM: dict[str, Any] = {
    "operation_id": "jobs_stream",
    "tags": ["jobs"],
    "summary": "Follow one job by server-sent events",
    "description": (
        "Events `text`, `progress` and `status`, each with an id. A stream ends after the final status, or after 55 s; "
        "send the last id as `Last-Event-ID` to go on after it."
    ),
    "parameters": [
        OpenApiParameter("job_id", OpenApiTypes.STR, OpenApiParameter.PATH),
        OpenApiParameter(
            "Last-Event-ID", OpenApiTypes.STR, OpenApiParameter.HEADER, description="the id of the last event received"
        ),
    ],
    "responses": {
        (200, "text/event-stream"): OpenApiResponse(OpenApiTypes.STR, "The events"),
        **_refusals(400),
        404: _UNKNOWN_JOB,
    },
}
SESSION_LIST: dict[str, Any] = {
    "operation_id": "sessions_list",
    "tags": ["sessions"],
    "summary": "List sessions",
    "parameters": _query(inputs.SessionListQuery),
    "responses": {200: _answer(outputs.SessionPage, "A page of sessions"), **_refusals(400)},
}
SESSION_OPEN: dict[str, Any] = {
    "operation_id": "sessions_open",
    "tags": ["sessions"],
    "summary": "Open a session before its first turn",
    "request": {_JSON: inputs.SessionBody},
    "responses": {
        201: _answer(outputs.Session, "The new session"),
        **_refusals(400, 413, 415),
        409: OpenApiResponse(outputs.Refused, "`session_exists`"),
    },
}
SESSION: dict[str, Any] = {
    "operation_id": "sessions_get",
    "tags": ["sessions"],
    "summary": "Show one session",
    "parameters": [OpenApiParameter("session_id", OpenApiTypes.STR, OpenApiParameter.PATH)],
    "responses": {200: _answer(outputs.Session, "The session"), **_refusals(400), 404: _UNKNOWN_SESSION},
}
SESSION_TURNS: dict[str, Any] = {
    "operation_id": "sessions_turns",
    "tags": ["sessions"],
    "summary": "List a session's turns, in order",
    "parameters": [
        OpenApiParameter("session_id", OpenApiTypes.STR, OpenApiParameter.PATH),
        *_query(inputs.Page),
    ],
    "responses": {200: _answer(outputs.TurnPage, "A page of turns"), **_refusals(400), 404: _UNKNOWN_SESSION},
}
SESSION_REPLY: dict[str, Any] = {
    "operation_id": "sessions_reply",
    "tags": ["sessions"],
    "summary": "Answer the question that a session waits on",
    "parameters": [OpenApiParameter("session_id", OpenApiTypes.STR, OpenApiParameter.PATH)],
    "request": {_JSON: inputs.ReplyBody},
    "responses": {
        200: _answer(outputs.ReplyAnswer, "The job goes on"),
        **_refusals(400, 413, 415),
        404: _UNKNOWN_SESSION,
        409: OpenApiResponse(outputs.Refused, "`no_question`: nobody asked, or it was answered"),
    },
}


def _steer(verb: str, summary: str, outcome: str) -> dict[str, Any]:
    example = {"results": [{"session_id": "s-1", "outcome": outcome}], "counts": {outcome: 1}}
    return {
        "operation_id": f"fleet_{verb}",
        "tags": ["fleet"],
        "summary": summary,
        "request": {_JSON: inputs.SteerBody},
        "responses": {
            200: _answer(steer_outputs.SteerAnswer, "What happened to each session", example),
            **_refusals(400, 413, 415),
        },
    }


GATES: dict[str, Any] = {
    "operation_id": "fleet_gates",
    "tags": ["fleet"],
    "summary": "Which claims are paused, by whom and why",
    "responses": {200: _answer(steer_outputs.Gates, "The pauses"), **_refusals(400)},
}


def _gate(verb: str, summary: str) -> dict[str, Any]:
    return {
        "operation_id": f"fleet_gates_{verb}",
        "tags": ["fleet"],
        "summary": summary,
        "description": "The fleet, a kind or an agent takes a platform key; a tenant's key shuts and opens its own.",
        "request": {_JSON: inputs.GateBody},
        "responses": {200: _answer(steer_outputs.GateAnswer, "What came of it"), **_refusals(400, 413, 415)},
    }


SHUT = _gate("shut", "Let nothing of the fleet, a kind, an agent or a tenant be claimed; what runs goes on")
OPEN = _gate("open", "Let it be claimed again")
LIMITS: dict[str, Any] = {
    "operation_id": "fleet_limits",
    "tags": ["fleet"],
    "summary": "How many turns of which agents and tenants may run and start",
    "responses": {200: _answer(steer_outputs.Limits, "The limits"), **_refusals(400)},
}


def _limit(verb: str, summary: str, body: type[inputs.LimitName]) -> dict[str, Any]:
    return {
        "operation_id": f"fleet_limits_{verb}",
        "tags": ["fleet"],
        "summary": summary,
        "description": "Takes a platform key with `operate`.",
        "request": {_JSON: body},
        "responses": {200: _answer(steer_outputs.LimitAnswer, "What came of it"), **_refusals(400, 413, 415)},
    }


SET_LIMIT = _limit("set", "Limit an agent or a tenant, in place of an earlier limit", inputs.LimitBody)
CLEAR_LIMIT = _limit("clear", "Take a limit away", inputs.LimitName)
PAUSE = _steer("pause", "Let running turns end, and start nothing new in these sessions", "requested")
RESUME = _steer("resume", "Let these sessions go on, in order", "applied")
KILL = _steer("kill", "Cancel what is queued and running in these sessions", "applied")
