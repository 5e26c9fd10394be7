"""The wire message: references only, never bodies."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from dispatch.errors import DispatchError

MAX_BYTES = 4096
JOB_ID = r"^(orch|goal)-[0-9a-f]{32}$"
NAME = r"^[A-Za-z0-9._:@-]{1,200}$"
OPTIONAL_NAME = r"^[A-Za-z0-9._:@-]{0,200}$"
_JOB_ID, _NAME = re.compile(JOB_ID.rstrip("$")), re.compile(NAME.rstrip("$"))


def is_name(text: str) -> bool:
    """Whether it can be the name of a session, tenant or agent."""
    return bool(_NAME.fullmatch(text))


def is_job_id(text: str) -> bool:
    return bool(_JOB_ID.fullmatch(text))


class BadEnvelope(DispatchError):
    """The message is not an agent turn envelope."""

    code = "invalid"
    http_status = 400


class AgentTurnEnvelope(BaseModel):
    """A turn that somebody may claim. It cannot create work: without a WorkItem of the same tenant it is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    job_id: str = Field(pattern=JOB_ID)
    session_id: str = Field(pattern=OPTIONAL_NAME)
    kind: Literal["orchestrator_task", "goal_loop"]
    payload_ref: str = Field(pattern=JOB_ID)
    agent_name: str = Field(pattern=OPTIONAL_NAME, default="")
    tenant: str = Field(pattern=OPTIONAL_NAME, default="")
    priority: Literal["critical", "high", "normal", "low"] = "normal"
    deadline_unix: float | None = None
    attempt: int = Field(ge=0, default=0)
    enqueued_at: float

    @field_validator("deadline_unix", "enqueued_at")
    @classmethod
    def _finite(cls, value: float | None) -> float | None:
        if value is not None and not (abs(value) < 1e12):
            raise ValueError("not a unix time")
        return value

    def encode(self) -> bytes:
        """JSON, at most 4 KiB."""
        raw = self.model_dump_json().encode()
        if len(raw) > MAX_BYTES:
            raise BadEnvelope(f"an envelope holds at most {MAX_BYTES} bytes, this one has {len(raw)}")
        return raw

    @classmethod
    def decode(cls, raw: bytes) -> AgentTurnEnvelope:
        """Raise BadEnvelope for anything that is not exactly an envelope."""
        if len(raw) > MAX_BYTES:
            raise BadEnvelope(f"over {MAX_BYTES} bytes")
        try:
            return cls.model_validate_json(raw)
        except ValueError as error:
            raise BadEnvelope(f"{type(error).__name__}: not an envelope") from error


def _reference(*parts: str) -> str:
    """An opaque, stable reference: session and tenant names do not travel as partition keys."""
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()[:32]


def partition_key_for(item: AgentTurnEnvelope) -> str:
    """`session:<reference>` when there is a session, else `tenant:<reference>`, else the job id."""
    if item.session_id:
        return f"session:{_reference(item.tenant, item.session_id)}"
    if item.tenant:
        return f"tenant:{_reference(item.tenant)}"
    return item.job_id
