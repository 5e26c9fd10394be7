"""What each operation answers, as the OpenAPI document shows it. Times are RFC 3339 in UTC."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, RootModel

from dispatch.api.inputs import PublicStatus, SessionStatus
from dispatch.specs import Kind, Priority


class Output(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="forbid")


class StatusRequest(Output):
    """The body to POST to `status_url` to ask where the job stands."""

    action: Literal["status"]
    job_id: str


class Handle(Output):
    """What a dispatch leaves in the caller's hand."""

    job_id: str
    session_id: str
    kind: Kind
    dispatch: Literal["queued"]
    status: PublicStatus
    status_url: str
    status_request: StatusRequest
    replayed: bool = Field(False, description="true when this idempotency key was admitted before")
    coalesced: bool = Field(False, description="true when the task replaced an unstarted turn's")


class Refused(Output):
    """Why a request was refused."""

    status: Literal["error"]
    code: str
    message: str
    fields: dict[str, str]


class JobUnknown(Output):
    """No such job, or another tenant's."""

    status: Literal["not_found"]
    error: str


class ManyAnswers(Output):
    """One answer per dispatch body, in order."""

    jobs: list[Handle | Refused]


class JobState(Output):
    """Where a job stands; `result_ref` once there is one."""

    kind: Kind
    status: PublicStatus
    payload_ref: str
    result_ref: str | None = None


class JobError(Output):
    """Why a job did not succeed."""

    code: str
    message: str


class Usage(Output):
    """What was spent on models."""

    requests: int = Field(description="answered or broken off; what a provider refused is not counted")
    input_tokens: int
    output_tokens: int
    tool_calls: int
    cost: str | None = Field(description="of the requests whose cost is known, a decimal; null when that of none is")
    unpriced_requests: int = Field(description="requests that `cost` lacks")


class JobResult(Output):
    """What a job returned; nulls while it is unfinished."""

    job_id: str
    status: PublicStatus
    result: Any
    error: JobError | None
    attempt: int
    finished_at: str | None
    usage: Usage | None = Field(description="over all runs of the job; null when it asked no model")


class CancelAnswer(Output):
    """done: it will not run (again). requested: its worker has been told. too_late: it had ended."""

    job_id: str
    status: PublicStatus
    cancel: Literal["done", "requested", "too_late"]


class Explanation(Output):
    """Why a job is, or is not, runnable."""

    runnable: bool
    reason: str | None
    detail: str | None
    blocked_by: str | None
    since: str | None


class JobEvent(Output):
    """One line of a job's timeline."""

    at: str
    event: str
    from_: str | None = Field(alias="from")
    to: str | None
    attempt: int | None
    worker: str | None
    reason: str | None


class JobEvents(Output):
    """A job's timeline, oldest first."""

    job_id: str
    events: list[JobEvent]


class Validation(Output):
    """What a goal's validation said of an iteration."""

    by: Literal["command", "check", "schema", "none"]
    passed: bool
    output: str = Field(description="why it did not pass; of a command the last 16 KiB of its output")
    exit_code: int | None = Field(description="of a command that ended by itself; negative: by that signal")
    timed_out: bool
    seconds: float


class GoalProgress(Output):
    """How far a goal is: `iteration` is the last one that was committed."""

    objective: str
    iteration: int
    max_iterations: int
    last_validation: Validation | None


class Iteration(Output):
    """One committed iteration of a goal."""

    iteration: int
    passed: bool
    validation: Validation
    result_excerpt: str = Field(description="the agent's result as text, at most 2 KiB")
    seconds: float = Field(description="what agent and validation took")
    checkpoint_id: str
    finished_at: str


class IterationPage(Output):
    """The committed iterations of a goal, oldest first."""

    job_id: str
    iterations: list[Iteration]
    next_cursor: str | None


class JobSummary(Output):
    """A job as lists show it."""

    job_id: str
    session_id: str
    kind: Kind
    agent_name: str
    task: str
    status: PublicStatus
    priority: Priority
    session_seq: int
    attempt: int
    max_attempts: int
    dependencies: list[str]
    metadata: dict[str, Any]
    created_at: str
    run_at: str | None
    deadline: str | None
    started_at: str | None
    finished_at: str | None
    cancel_requested_at: str | None = Field(description="when a cancel was asked for")
    cancel_seen_at: str | None = Field(description="when its worker was told")
    stopped_at: str | None = Field(description="when its agent had really stopped")
    payload_ref: str
    result_ref: str | None
    error: JobError | None
    goal: GoalProgress | None = Field(None, description="jobs of kind goal_loop: how far it is")


class Delivery(Output):
    """One event of a job for its callback's address."""

    delivery_id: str
    event: str
    url: str = Field(description="without its query")
    state: Literal["pending", "delivered", "dead"]
    tries: int
    created_at: str
    next_at: str | None = Field(description="when it is tried next")
    delivered_at: str | None
    last_status: int | None = Field(description="the HTTP status of the last answer")
    last_error: str | None


class Redelivered(Output):
    """The delivery, which is sent again."""

    job_id: str
    delivery: Delivery


class Job(JobSummary):
    """A job in full."""

    result: Any
    usage: Usage | None
    explain: Explanation
    events: list[JobEvent]
    deliveries: list[Delivery]


class JobPage(Output):
    """Jobs, newest first."""

    jobs: list[JobSummary]
    next_cursor: str | None


class Admitted(RootModel[Handle | ManyAnswers | Redelivered]):
    """The handle of a dispatch or retry; the answers of a dispatch_many; the delivery of a redeliver."""


class ActionAnswer(
    RootModel[JobState | JobResult | CancelAnswer | Explanation | JobEvents | IterationPage | JobPage | Handle | str]
):
    """What the action asked for; the text is the inline backend's."""


class OpenQuestion(Output):
    """What a session waits for a person to answer."""

    job_id: str
    question: str
    choices: list[str] | None
    asked_at: str
    answer_by: str | None = Field(description="when the default answers")
    default: str | None


class Desired(Output):
    """What was last wanted of a session: by whom, why, when it was asked, seen and done, and which worker saw it."""

    wish: Literal["run", "pause", "kill"]
    by: str | None
    reason: str | None
    at: str | None
    seen_at: str | None
    seen_by: str | None = Field(description="the worker's id, or of one that is gone the start of its token")
    stopped_at: str | None


class SessionSummary(Output):
    """A session as lists show it."""

    session_id: str
    status: SessionStatus
    domain: str
    metadata: dict[str, Any]
    turns: int = Field(description="how many turns have run")
    needs_input: OpenQuestion | None
    desired: Desired
    created_at: str
    updated_at: str


class Session(SessionSummary):
    """A session with its state."""

    state: dict[str, Any]
    usage: Usage | None = Field(description="of its jobs that are kept; null when none asked a model")


class SessionPage(Output):
    """Sessions of the caller's tenant."""

    sessions: list[SessionSummary]
    next_cursor: str | None


class TurnEntry(Output):
    """A job's latest run in its session; `turn_number` is null while it has never run."""

    turn_number: int | None
    job_id: str
    agent_name: str
    task: str
    result: Any
    error: JobError | None
    status: PublicStatus
    attempt: int
    started_at: str | None
    finished_at: str | None


class TurnPage(Output):
    """Turns in the order of their places in the session."""

    turns: list[TurnEntry]
    next_cursor: str | None


class ReplyAnswer(Output):
    """The job that goes on."""

    session_id: str
    job_id: str
    status: PublicStatus
