"""What a schedule may be: the body as a caller sends it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator

from dispatch.envelope import NAME, OPTIONAL_NAME
from dispatch.inputs import Input
from dispatch.json_text import json_size
from dispatch.schedules.recurrence import check_cron, zone_of
from dispatch.specs import MAX_PAYLOAD_BYTES, MAX_TASK_BYTES, Priority

MAX_CRON = 200  # characters
MAX_JITTER_S = 3600
_NAMED = "a name of 1 to 200 of letters, digits and . _ : @ -"

CatchUp = Literal["skip", "once", "all"]
Overlap = Literal["enqueue", "skip", "coalesce"]


class ScheduleFields(Input):
    """All of a schedule but its name."""

    cron: str = Field(
        max_length=MAX_CRON,
        description="a cron line: minute hour day month weekday, or 6 fields with the second first",
    )
    timezone: str = Field("UTC", max_length=64, description="an IANA time zone, such as Europe/Berlin or UTC")
    task: str = Field(description="a non-empty text of at most 256 KiB")
    agent_name: str = Field("", pattern=OPTIONAL_NAME, description=f"the name of an agent: {_NAMED}")
    session_id: str | None = Field(None, pattern=NAME, description=f"{_NAMED}; null: each run is a session of its own")
    payload: dict[str, Any] = Field({}, description="an object of at most 1 MiB")
    priority: Priority = Field("normal", description="critical, high, normal or low")
    catch_up: CatchUp = Field("once", description="skip, once or all: what becomes of due times that were missed")
    overlap: Overlap = Field(
        "enqueue",
        description="enqueue, skip or coalesce: what becomes of a due time while an earlier run is unfinished",
    )
    jitter_s: float = Field(0, ge=0, le=MAX_JITTER_S, description=f"a number of seconds from 0 to {MAX_JITTER_S}")
    enabled: bool = Field(True, description="true or false")

    @field_validator("cron")
    @classmethod
    def _cron(cls, line: str) -> str:
        return check_cron(line)

    @field_validator("timezone")
    @classmethod
    def _timezone(cls, name: str) -> str:
        return zone_of(name).key

    @field_validator("task")
    @classmethod
    def _task(cls, text: str) -> str:
        if not (text.strip() and len(text.encode()) <= MAX_TASK_BYTES):
            raise ValueError("must be a non-empty text of at most 256 KiB")
        return text

    @field_validator("payload")
    @classmethod
    def _payload(cls, payload: dict[str, Any]) -> dict[str, Any]:
        if json_size(payload) > MAX_PAYLOAD_BYTES:
            raise ValueError("must be an object of at most 1 MiB")
        return payload


class ScheduleBody(ScheduleFields):
    """A new schedule."""

    name: str = Field(pattern=NAME, description=_NAMED)


def _all_optional(schema: dict[str, Any]) -> None:
    schema.pop("required", None)
    for field in schema["properties"].values():
        field.pop("default", None)


class ScheduleChange(ScheduleFields):
    """What to change of a schedule; a field that is not given stays as it is."""

    model_config = ConfigDict(json_schema_extra=_all_optional)


class RunBody(Input):
    """A run on demand, now."""

    reason: str = Field("", max_length=500, description="a text of at most 500 characters")
    idempotency_key: str | None = Field(
        None, min_length=1, max_length=200, description="a text of 1 to 200 printable characters"
    )

    @field_validator("idempotency_key")
    @classmethod
    def _key(cls, key: str | None) -> str | None:
        if key is not None and not key.isprintable():
            raise ValueError("must be a text of 1 to 200 printable characters")
        return key


class SwitchBody(Input):
    """Why a schedule is paused or resumed."""

    reason: str = Field("", max_length=500, description="a text of at most 500 characters")
