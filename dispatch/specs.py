"""What may be dispatched: one body, as a caller sends it, and the validated spec that services take."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, field_validator

from dispatch.envelope import NAME, OPTIONAL_NAME, is_job_id, is_name
from dispatch.goal_specs import check_constraints, check_validation
from dispatch.inputs import Input, read_input, refusal
from dispatch.json_text import json_size
from dispatch.states import GOAL_LOOP
from dispatch.webhooks.addresses import RIGHT, check_url

MAX_TASK_BYTES = 256 * 1024
MAX_PAYLOAD_BYTES = 1024 * 1024
MAX_METADATA_BYTES = 64 * 1024
MAX_DEPENDENCIES = 100
GOAL_FIELDS = ("objective", "validation", "max_iterations", "constraints")
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII)
_LAST_YEAR = 2999
_encode_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode

Priority = Literal["critical", "high", "normal", "low"]
Kind = Literal["orchestrator_task", "goal_loop"]
OnBusy = Literal["enqueue", "reject", "interrupt", "coalesce"]
OnWorkerLost = Literal["retry", "fail"]


class DeadlineInput(Input):
    """The two ways to give a deadline."""

    deadline_unix: float | None = Field(None, description="a unix time in seconds, later than now")
    deadline_s: float | None = Field(None, description="a number of seconds from now, greater than 0")

    def deadline(self, now: datetime) -> datetime | None:
        """The moment in UTC; raise Invalid for one in the past, beyond the year 2999, or given in both ways."""
        if self.deadline_unix is not None and self.deadline_s is not None:
            raise refusal({"deadline_s": "and deadline_unix exclude each other"})
        try:
            if self.deadline_unix is not None:
                return _future("deadline_unix", datetime.fromtimestamp(self.deadline_unix, UTC), now)
            if self.deadline_s is not None:
                return _future("deadline_s", now + timedelta(seconds=self.deadline_s), now)
        except (OverflowError, ValueError, OSError):
            field = "deadline_s" if self.deadline_unix is None else "deadline_unix"
            raise refusal({field: f"must be a time before the year {_LAST_YEAR + 1}"}) from None
        return None


def _future(field: str, moment: datetime, now: datetime) -> datetime:
    if moment <= now:
        raise refusal({field: "is in the past"})
    if moment.year > _LAST_YEAR:
        raise OverflowError
    return moment


class DispatchBody(DeadlineInput):
    """A dispatch, as it is sent."""

    task: str = Field(description="a non-empty text of at most 256 KiB")
    kind: Kind = Field("orchestrator_task", description="orchestrator_task or goal_loop")
    agent_name: str = Field(
        "", pattern=OPTIONAL_NAME, description="the name of an agent: at most 200 of letters, digits and . _ : @ -"
    )
    session_id: str | None = Field(
        None, pattern=NAME, description="the name of a session: 1 to 200 of letters, digits and . _ : @ -"
    )
    payload: dict[str, Any] = Field({}, description="an object of at most 1 MiB")
    dependencies: Annotated[
        list[str],
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "array", "items": {"type": "string"}, "maxItems": MAX_DEPENDENCIES},
                    {"type": "string", "description": "JSON text of such a list"},
                ]
            }
        ),
    ] = Field([], description=f"a list of at most {MAX_DEPENDENCIES} different job ids, or JSON text of one")
    priority: Priority = Field("normal", description="critical, high, normal or low")
    run_at: str | None = Field(
        None,
        description="an RFC 3339 time with its zone, such as 2030-01-31T08:00:00Z",
        json_schema_extra={"format": "date-time"},
    )
    max_attempts: int | None = Field(None, ge=1, le=100, description="a whole number from 1 to 100")
    on_worker_lost: OnWorkerLost | None = Field(None, description="retry or fail")
    idempotency_key: str | None = Field(
        None, min_length=1, max_length=200, description="a text of 1 to 200 printable characters"
    )
    metadata: dict[str, Any] = Field(
        {}, description="an object of at most 64 KiB: domain and team are names, labels an object of texts"
    )
    on_busy: OnBusy = Field("enqueue", description="enqueue, reject, interrupt or coalesce")
    callback_url: str | None = Field(None, description=f"{RIGHT}, under a webhook endpoint of the tenant")
    objective: str | None = Field(None, description="a non-empty text of at most 256 KiB")
    validation: dict[str, Any] | None = Field(
        None,
        description=(
            "an object of at most 64 KiB with one of command (list of texts; beside it timeout_s, 0 to 86400), check "
            "(name) and schema (JSON schema)"
        ),
    )
    max_iterations: int | None = Field(None, ge=1, le=10_000, description="a whole number from 1 to 10000")
    constraints: dict[str, Any] | list[str] | None = Field(
        None,
        description="an object or a list of texts, at most 64 KiB; max_seconds in it is a number above 0",
    )

    @field_validator("task", "objective")
    @classmethod
    def _text(cls, text: str | None) -> str | None:
        if text is not None and not (text.strip() and len(text.encode()) <= MAX_TASK_BYTES):
            raise ValueError("must be a non-empty text of at most 256 KiB")
        return text

    @field_validator("dependencies", mode="before")
    @classmethod
    def _dependencies(cls, given: Any) -> Any:
        return [] if given is None else _read_dependencies(given)

    @field_validator("payload")
    @classmethod
    def _payload(cls, payload: dict[str, Any]) -> dict[str, Any]:
        if json_size(payload) > MAX_PAYLOAD_BYTES:
            raise ValueError("must be an object of at most 1 MiB")
        return payload

    @field_validator("run_at")
    @classmethod
    def _run_at(cls, text: str | None) -> str | None:
        if text is not None:
            read_time(text)
        return text

    @field_validator("idempotency_key")
    @classmethod
    def _key(cls, key: str | None) -> str | None:
        if key is not None and not key.isprintable():
            raise ValueError("must be a text of 1 to 200 printable characters")
        return key

    @field_validator("metadata")
    @classmethod
    def _metadata(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        return check_metadata(metadata)

    @field_validator("callback_url")
    @classmethod
    def _callback(cls, url: str | None) -> str | None:
        if url is not None:
            check_url(url)
        return url

    @field_validator("validation")
    @classmethod
    def _validation(cls, rule: dict[str, Any] | None) -> dict[str, Any] | None:
        return rule if rule is None else check_validation(rule)

    @field_validator("constraints")
    @classmethod
    def _constraints(cls, given: dict[str, Any] | list[str] | None) -> dict[str, Any] | list[str] | None:
        return check_constraints(given)


@dataclass(frozen=True, kw_only=True, slots=True)
class DispatchSpec:
    """One validated dispatch. `fingerprint`, with a key, has a digest per field as it was sent, the key left out."""

    task: str
    kind: str
    agent_name: str
    session_id: str | None
    payload: dict[str, Any]
    dependencies: list[str]
    priority: str
    deadline: datetime | None
    run_at: datetime | None
    max_attempts: int | None
    on_worker_lost: str | None
    idempotency_key: str | None
    metadata: dict[str, Any]
    on_busy: str
    callback_url: str | None
    objective: str | None
    validation: dict[str, Any] | None
    max_iterations: int | None
    constraints: dict[str, Any] | list[str] | None
    fingerprint: dict[str, str]

    @classmethod
    def parse(cls, body: Mapping[str, Any], *, now: datetime | None = None) -> DispatchSpec:
        """Read one dispatch body; raise Invalid naming every wrong field."""
        if not isinstance(body, Mapping):
            raise refusal({"body": "must be an object: one dispatch"})
        sent = read_input(DispatchBody, body)
        if sent.kind != GOAL_LOOP and (stray := [name for name in GOAL_FIELDS if getattr(sent, name) is not None]):
            raise refusal(dict.fromkeys(stray, "is a field of kind goal_loop only"))
        values = dict(vars(sent))  # flat, and without the iteration of a pydantic model
        del values["deadline_unix"], values["deadline_s"]
        values["deadline"] = sent.deadline(now or datetime.now(UTC))
        values["run_at"] = read_time(sent.run_at) if sent.run_at is not None else None
        # only a repeated key is ever compared
        values["fingerprint"] = fingerprint(body) if sent.idempotency_key is not None else {}
        return cls(**values)


def fingerprint(body: Mapping[str, Any]) -> dict[str, str]:
    """A short digest per field of a body as it was sent: two bodies can be told apart field by field."""
    return {
        field: hashlib.sha256(_canonical(value).encode()).hexdigest()[:16]
        for field, value in body.items()
        if field != "idempotency_key"
    }


def read_time(text: str) -> datetime:
    """An RFC 3339 time with a zone, in UTC; raise ValueError for anything else, and for years outside 1970 to 2999."""
    right = "must be an RFC 3339 time with its zone, such as 2030-01-31T08:00:00Z"
    if not _RFC3339.fullmatch(text):
        raise ValueError(right)
    try:
        moment = datetime.fromisoformat(text.upper()).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(right) from None
    if not 1970 <= moment.year <= _LAST_YEAR:
        raise ValueError(f"must be a time between the years 1970 and {_LAST_YEAR}")
    return moment


def check_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Refuse a domain or team that is no name, labels that are not texts, and more than 64 KiB."""
    for key in ("domain", "team"):
        value = metadata.get(key)
        if key in metadata and not (isinstance(value, str) and is_name(value)):
            raise ValueError(f"has a {key} that is no name of 1 to 200 of letters, digits and . _ : @ -")
    labels = metadata.get("labels", {})
    if not (isinstance(labels, dict) and all(isinstance(value, str) for value in labels.values())):
        raise ValueError("has labels that are not an object of texts")
    if json_size(metadata) > MAX_METADATA_BYTES:
        raise ValueError("must be an object of at most 64 KiB")
    return metadata


def _read_dependencies(given: Any) -> list[str]:
    right = f"must be a list of at most {MAX_DEPENDENCIES} different job ids, or JSON text of one"
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            raise ValueError(right) from None
    if not (isinstance(given, list) and len(given) <= MAX_DEPENDENCIES):
        raise ValueError(right)
    for item in given:
        if not (isinstance(item, str) and is_job_id(item)):
            raise ValueError("must name jobs by their ids: orch- or goal-, and 32 hex digits")
    if len(set(given)) < len(given):
        raise ValueError("name the same job twice")
    return given


def _canonical(value: Any) -> str:
    return _encode_canonical(value)
