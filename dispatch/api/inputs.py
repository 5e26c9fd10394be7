"""What each operation takes: one model per action, query and body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from django.http import QueryDict
from pydantic import BaseModel, Field, GetJsonSchemaHandler, RootModel, field_validator, model_validator
from pydantic.json_schema import JsonSchemaValue

from dispatch.envelope import NAME
from dispatch.inputs import Input, M, read_input, refusal
from dispatch.json_text import json_size
from dispatch.specs import DeadlineInput, DispatchBody, Kind, check_metadata

MAX_LIMIT = 500
MAX_WAIT_S = 55
MAX_MANY = 1000
MAX_STEERED = 10_000
MAX_STATE_BYTES = 256 * 1024

PublicStatus = Literal["pending", "running", "suspended", "succeeded", "failed", "cancelled", "dead_letter"]
SessionStatus = Literal[
    "active", "idle", "failed", "needs_input", "pause_requested", "paused", "kill_requested", "cancelled"
]
JobId = Annotated[str, Field(description="the job_id of a handle")]
_NAMED = "a name of 1 to 200 of letters, digits and . _ : @ -"


@dataclass(frozen=True)
class ShownAs:
    """Show a model in the schema for a value that is taken as it comes, and read later on its own."""

    model: type[BaseModel]

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(self.model.__pydantic_core_schema__)


class Page(Input):
    """A bounded piece of a list."""

    limit: int = Field(100, ge=1, le=MAX_LIMIT, description=f"a whole number from 1 to {MAX_LIMIT}")
    cursor: str | None = Field(None, max_length=1000, description="the next_cursor of an earlier answer")


class JobListQuery(Page):
    """Which jobs."""

    status: PublicStatus | None = Field(
        None, description="pending, running, suspended, succeeded, failed, cancelled or dead_letter"
    )
    session_id: str | None = Field(None, pattern=NAME, description=_NAMED)
    agent_name: str | None = Field(None, pattern=NAME, description=_NAMED)
    kind: Kind | None = Field(None, description="orchestrator_task or goal_loop")


class SessionListQuery(Page):
    """Which sessions."""

    status: SessionStatus | None = Field(
        None,
        description="active, idle, failed, needs_input, pause_requested, paused, kill_requested or cancelled",
    )
    domain: str | None = Field(None, pattern=NAME, description=_NAMED)


class NoQuery(Input):
    """No query parameter."""


class DispatchAction(DispatchBody):
    """Admit one turn."""

    action: Literal["dispatch"]


class DispatchManyAction(Input):
    """Admit many turns; each is answered for itself."""

    action: Literal["dispatch_many"]
    jobs: list[Annotated[Any, ShownAs(DispatchBody)]] = Field(
        max_length=MAX_MANY, description=f"a list of at most {MAX_MANY} dispatch bodies"
    )


class StatusAction(Input):
    """Ask where a job stands."""

    action: Literal["status"]
    job_id: JobId


class WaitAction(Input):
    """Wait until a job has ended, or the time is over."""

    action: Literal["wait"]
    job_id: JobId
    timeout_s: float = Field(30, ge=0, le=MAX_WAIT_S, description=f"a number of seconds from 0 to {MAX_WAIT_S}")


class ResultAction(Input):
    """Ask what a job returned."""

    action: Literal["result"]
    job_id: JobId


class CancelAction(Input):
    """Ask that a job not run, or stop."""

    action: Literal["cancel"]
    job_id: JobId
    reason: str = Field("", max_length=500, description="a text of at most 500 characters")


class RetryAction(DeadlineInput):
    """Run a job again that ended without success."""

    action: Literal["retry"]
    job_id: JobId


class ExplainAction(Input):
    """Ask why a job is not running."""

    action: Literal["explain"]
    job_id: JobId


class EventsAction(Input):
    """Ask for a job's timeline."""

    action: Literal["events"]
    job_id: JobId


class RedeliverAction(Input):
    """Send a delivery of a job's callbacks again."""

    action: Literal["redeliver"]
    job_id: JobId
    delivery_id: str = Field(min_length=1, max_length=40, description="the delivery_id of one of the job's deliveries")


class IterationsAction(Page):
    """Ask for the iterations of a goal, oldest first."""

    action: Literal["iterations"]
    job_id: JobId


class ListAction(JobListQuery):
    """List jobs, newest first."""

    action: Literal["list"]


class JobAction(
    RootModel[
        Annotated[
            DispatchAction
            | DispatchManyAction
            | StatusAction
            | WaitAction
            | ResultAction
            | CancelAction
            | RetryAction
            | ExplainAction
            | EventsAction
            | IterationsAction
            | RedeliverAction
            | ListAction,
            Field(discriminator="action"),
        ]
    ]
):
    """The body of a POST: `action` says which."""


class SessionBody(Input):
    """A session to open."""

    session_id: str = Field(pattern=NAME, description=_NAMED)
    metadata: dict[str, Any] = Field(
        {}, description="an object of at most 64 KiB: domain and team are names, labels an object of texts"
    )
    state: dict[str, Any] = Field({}, description="an object of at most 256 KiB: the state that the first turn finds")

    @field_validator("metadata")
    @classmethod
    def _metadata(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        return check_metadata(metadata)

    @field_validator("state")
    @classmethod
    def _state(cls, state: dict[str, Any]) -> dict[str, Any]:
        if json_size(state) > MAX_STATE_BYTES:
            raise ValueError("must be an object of at most 256 KiB")
        return state


class ReplyBody(Input):
    """The answer to a turn that asked: a text of one's own, or one of the choices."""

    text: str | None = Field(None, min_length=1, max_length=65_536, description="a text of 1 to 65536 characters")
    choice: str | None = Field(None, min_length=1, max_length=1000, description="one of the question's choices")

    @model_validator(mode="after")
    def _one(self) -> ReplyBody:
        if (self.text is None) == (self.choice is None):
            raise refusal({"text": "or choice must be given, and not both"})
        return self


class SteerFilter(Input):
    """Sessions by what they are; every condition given must hold."""

    status: SessionStatus | None = Field(
        None,
        description="active, idle, failed, needs_input, pause_requested, paused, kill_requested or cancelled",
    )
    domain: str | None = Field(None, min_length=1, max_length=200, description="a text of 1 to 200 characters")
    agent_name: str | None = Field(None, pattern=NAME, description=_NAMED)

    @model_validator(mode="after")
    def _some(self) -> SteerFilter:
        if not self.conditions():
            raise refusal({"filter": "must name a status, domain or agent_name"})
        return self

    def conditions(self) -> dict[str, str]:
        return self.model_dump(exclude_none=True)


class SteerBody(Input):
    """Which sessions to pause, resume or kill, and why."""

    session_ids: list[Annotated[str, Field(min_length=1, max_length=200)]] | None = Field(
        None, min_length=1, max_length=MAX_STEERED, description=f"a list of 1 to {MAX_STEERED} session ids"
    )
    domain: str | None = Field(None, min_length=1, max_length=200, description="a text of 1 to 200 characters")
    filter: SteerFilter | None = Field(None, description="an object with status, domain or agent_name")
    reason: str = Field(min_length=1, max_length=500, description="a text of 1 to 500 characters")

    @model_validator(mode="after")
    def _one_selection(self) -> SteerBody:
        if sum(part is not None for part in (self.session_ids, self.domain, self.filter)) != 1:
            raise refusal({"session_ids": "or domain or filter must be given, exactly one of them"})
        return self


class GateBody(Input):
    """Which claims to stop or let go on, and why."""

    scope: Literal["fleet", "kind", "agent", "tenant"] = Field(description="fleet, kind, agent or tenant")
    name: str | None = Field(None, pattern=NAME, description=_NAMED)
    reason: str = Field(min_length=1, max_length=500, description="a text of 1 to 500 characters")

    @model_validator(mode="after")
    def _named(self) -> GateBody:
        if self.scope == "fleet" and self.name is not None:
            raise refusal({"name": "must not be given: there is one fleet"})
        if self.scope != "fleet" and self.name is None:
            raise refusal({"name": f"is missing: which {self.scope}"})
        return self


class LimitName(Input):
    """Whose limit, and why."""

    scope: Literal["agent", "tenant"] = Field(description="agent or tenant")
    name: str = Field(pattern=NAME, description=_NAMED)
    reason: str = Field(min_length=1, max_length=500, description="a text of 1 to 500 characters")


class LimitBody(LimitName):
    """How many turns of an agent or a tenant may run at once, and how many may start in a second."""

    max_running: int | None = Field(None, ge=1, le=1_000_000, description="a whole number from 1 to 1000000")
    rate_per_s: float | None = Field(None, gt=0, le=1_000_000, description="a number over 0, at most 1000000")
    burst: int | None = Field(None, ge=1, le=1_000_000, description="a whole number from 1 to 1000000")

    @model_validator(mode="after")
    def _something(self) -> LimitBody:
        if self.max_running is None and self.rate_per_s is None:
            raise refusal({"max_running": "or rate_per_s must be given, or both"})
        if self.burst is not None and self.rate_per_s is None:
            raise refusal({"burst": "goes with rate_per_s"})
        return self


class DrainBody(Input):
    """Why a worker is drained, for the audit log."""

    reason: str = Field("", max_length=500, description="a text of at most 500 characters")


def read_query(model: type[M], query: QueryDict) -> M:
    """Build the model from a query string; raise Invalid for an unknown parameter, or one given twice."""
    values: dict[str, Any] = {}
    for name, given in query.lists():
        if len(given) != 1:
            raise refusal({name[:120]: "is given twice"})
        values[name] = _number(given[0]) if name == "limit" else given[0]
    return read_input(model, values)


def _number(text: str) -> int | str:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else text


def without_action(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "action"}
