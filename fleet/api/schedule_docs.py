"""How the operations on schedules stand in the OpenAPI document, and what they answer."""

from __future__ import annotations

from typing import Any, Literal

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse
from pydantic import Field

from dispatch.api import outputs
from dispatch.api.inputs import Page, PublicStatus
from dispatch.api.outputs import Output
from dispatch.schedules.specs import CatchUp, Overlap, RunBody, ScheduleBody, ScheduleChange, SwitchBody
from dispatch.specs import Priority
from fleet.api.docs import query_parameters


class Paused(Output):
    """Since when a schedule is off, by whom and why."""

    by: str | None
    reason: str | None
    at: str


class RefusedRun(Output):
    """A due time that has come and is tried again each tick: why, and since when."""

    code: str
    since: str


class Schedule(Output):
    """A schedule as lists show it. Times are RFC 3339 in UTC."""

    name: str
    cron: str
    timezone: str
    task: str
    agent_name: str
    session_id: str | None
    payload: dict[str, Any]
    priority: Priority
    catch_up: CatchUp
    overlap: Overlap
    jitter_s: float
    enabled: bool
    tenant: str
    next_run_at: str | None = Field(description="with its jitter; null while it is off")
    last_run_at: str | None = Field(description="when it last made a job, by its due time or on demand")
    last_job_id: str | None
    paused: Paused | None
    refused: RefusedRun | None
    created_at: str
    updated_at: str


class ScheduleRun(Output):
    """What became of a due time; `count` of them where several were missed."""

    due_at: str
    at: str
    outcome: Literal["queued", "manual", "coalesced", "skipped", "missed"]
    count: int
    job_id: str | None
    status: PublicStatus | None = Field(description="the job's; null where there is none, or no longer")


class ScheduleDetail(Schedule):
    """A schedule with its next runs, and what became of its last ones, newest first."""

    upcoming: list[str]
    runs: list[ScheduleRun]


class SchedulePage(Output):
    """Schedules, newest first."""

    schedules: list[Schedule]
    next_cursor: str | None


_JSON = "application/json"
_NAME = OpenApiParameter("name", OpenApiTypes.STR, OpenApiParameter.PATH)
_TEXTS = {
    400: "`invalid`, with the wrong `fields`",
    401: "`unauthenticated`",
    403: "`forbidden`: the key's scopes do not allow it",
    404: "`not_found`",
    409: "`schedule_exists`: one of this name has other values, which `fields` name",
    413: "`too_large`: over 1 MiB",
    415: "`unsupported_media_type`: the body is not application/json",
    429: "`queue_full`, with `Retry-After`",
    503: "`queue_unavailable` or `store_unavailable`",
}


def _refusals(*codes: int) -> dict[Any, Any]:
    return {code: OpenApiResponse(outputs.Refused, _TEXTS[code]) for code in (400, 401, 403, 503, *codes)}


def _on_one(operation: str, summary: str, answer: Any, *codes: int, request: Any = None) -> dict[str, Any]:
    body = {} if request is None else {"request": {_JSON: request}}
    codes = codes if request is None else (413, 415, *codes)
    return {
        "operation_id": f"schedules_{operation}",
        "tags": ["schedules"],
        "summary": summary,
        "parameters": [_NAME],
        **body,
        "responses": {**answer, **_refusals(404, *codes)},
    }


LIST: dict[str, Any] = {
    "operation_id": "schedules_list",
    "tags": ["schedules"],
    "summary": "List schedules, newest first",
    "parameters": query_parameters(Page),
    "responses": {200: OpenApiResponse(SchedulePage, "A page of schedules"), **_refusals()},
}
CREATE: dict[str, Any] = {
    "operation_id": "schedules_create",
    "tags": ["schedules"],
    "summary": "Make a schedule",
    "request": {_JSON: ScheduleBody},
    "examples": [
        OpenApiExample(
            "Each weekday at six in Berlin",
            {"name": "digest", "cron": "0 6 * * MON-FRI", "timezone": "Europe/Berlin", "task": "Write the digest"},
            request_only=True,
        )
    ],
    "responses": {
        201: OpenApiResponse(Schedule, "It is made"),
        200: OpenApiResponse(Schedule, "It was there already, with the same values"),
        **_refusals(409, 413, 415),
    },
}
GET = _on_one("get", "Show one schedule", {200: OpenApiResponse(ScheduleDetail, "The schedule")})
CHANGE = _on_one(
    "change", "Change a schedule", {200: OpenApiResponse(Schedule, "As it is now")}, request=ScheduleChange
)
REMOVE = _on_one("remove", "Remove a schedule; its jobs stay", {204: OpenApiResponse(None, "It is gone")})
PAUSE = _on_one("pause", "Turn a schedule off", {200: OpenApiResponse(Schedule, "As it is now")}, request=SwitchBody)
RESUME = _on_one(
    "resume", "Turn a schedule on, from now", {200: OpenApiResponse(Schedule, "As it is now")}, request=SwitchBody
)
RUN = _on_one(
    "run",
    "Run a schedule now, whatever its due times, pause and overlap say",
    {
        202: OpenApiResponse(outputs.Handle, "The job is admitted"),
        200: OpenApiResponse(outputs.Handle, "This key's job, `replayed`"),
    },
    429,
    request=RunBody,
)
