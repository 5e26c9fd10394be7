"""Bodies of the REST API as types. A server that is newer may send more keys. Times are RFC 3339 texts in UTC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NotRequired, TypedDict

PublicStatus = Literal["pending", "running", "suspended", "succeeded", "failed", "cancelled", "dead_letter"]
TERMINAL = frozenset({"succeeded", "failed", "cancelled", "dead_letter"})


class DispatchFields(TypedDict, total=False):
    """What a dispatch takes beside its task. `run_at` may be a datetime with a zone."""

    kind: Literal["orchestrator_task", "goal_loop"]
    agent_name: str
    session_id: str
    payload: Mapping[str, Any]
    dependencies: Sequence[str]
    priority: Literal["critical", "high", "normal", "low"]
    run_at: datetime | str
    deadline_unix: float
    deadline_s: float
    max_attempts: int
    on_worker_lost: Literal["retry", "fail"]
    idempotency_key: str
    metadata: Mapping[str, Any]
    on_busy: Literal["enqueue", "reject", "interrupt", "coalesce"]
    callback_url: str
    objective: str
    validation: Mapping[str, Any]
    max_iterations: int
    constraints: Mapping[str, Any] | Sequence[str]


class DispatchBody(DispatchFields):
    """One of `dispatch_many`."""

    task: str


class JobState(TypedDict):
    """Where a job stands; `result_ref` once there is one."""

    kind: str
    status: PublicStatus
    payload_ref: str
    result_ref: NotRequired[str]


class JobError(TypedDict):
    """Why a job did not succeed."""

    code: str
    message: str


class Usage(TypedDict):
    """What was spent on models. `cost` is a decimal that lacks `unpriced_requests`; null when no cost is known."""

    requests: int
    input_tokens: int
    output_tokens: int
    tool_calls: int
    cost: str | None
    unpriced_requests: int


class JobResult(TypedDict):
    """What a job returned; nulls while it is unfinished."""

    job_id: str
    status: PublicStatus
    result: Any
    error: JobError | None
    attempt: int
    finished_at: str | None
    usage: Usage | None


class CancelAnswer(TypedDict):
    """done: it will not run (again). requested: its worker has been told. too_late: it had ended."""

    job_id: str
    status: PublicStatus
    cancel: Literal["done", "requested", "too_late"]


class Explanation(TypedDict):
    """Why a job is, or is not, runnable."""

    runnable: bool
    reason: str | None
    detail: str | None
    blocked_by: str | None
    since: str | None


# `from` is a word of the language, so this one is made by a call
JobEvent = TypedDict(
    "JobEvent",
    {
        "at": str,
        "event": str,
        "from": str | None,
        "to": str | None,
        "attempt": int | None,
        "worker": str | None,
        "reason": str | None,
    },
)


class JobSummary(TypedDict):
    """A job as lists show it."""

    job_id: str
    session_id: str
    kind: str
    agent_name: str
    task: str
    status: PublicStatus
    priority: str
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
    cancel_requested_at: str | None
    cancel_seen_at: str | None
    stopped_at: str | None
    payload_ref: str
    result_ref: str | None
    error: JobError | None
    goal: NotRequired[dict[str, Any]]


class Delivery(TypedDict):
    """One event of a job for its callback's address."""

    delivery_id: str
    event: str
    url: str
    state: Literal["pending", "delivered", "dead"]
    tries: int
    created_at: str
    next_at: str | None
    delivered_at: str | None
    last_status: int | None
    last_error: str | None


class Redelivered(TypedDict):
    """The delivery, which is sent again."""

    job_id: str
    delivery: Delivery


class JobDetails(JobSummary):
    """A job in full."""

    result: Any
    usage: Usage | None
    explain: Explanation
    events: list[JobEvent]
    deliveries: list[Delivery]


class Validation(TypedDict):
    """How an iteration's result was judged."""

    by: Literal["command", "check", "schema", "none"]
    passed: bool
    output: str
    exit_code: int | None
    timed_out: bool
    seconds: float


class Iteration(TypedDict):
    """One committed iteration of a goal."""

    iteration: int
    passed: bool
    validation: Validation
    result_excerpt: str
    seconds: float
    checkpoint_id: str
    finished_at: str


class IterationPage(TypedDict):
    """The committed iterations of a goal, oldest first."""

    job_id: str
    iterations: list[Iteration]
    next_cursor: str | None


class JobPage(TypedDict):
    """Jobs, newest first."""

    jobs: list[JobSummary]
    next_cursor: str | None


class OpenQuestion(TypedDict):
    """What a session waits for a person to answer."""

    job_id: str
    question: str
    choices: list[str] | None
    asked_at: str
    answer_by: str | None
    default: str | None


class Desired(TypedDict):
    """What was last wanted of a session."""

    wish: str
    by: str | None
    reason: str | None
    at: str | None
    seen_at: str | None
    seen_by: str | None
    stopped_at: str | None


class SessionSummary(TypedDict):
    """A session as lists show it."""

    session_id: str
    status: str
    domain: str
    metadata: dict[str, Any]
    turns: int
    needs_input: OpenQuestion | None
    desired: Desired
    created_at: str
    updated_at: str


class SessionDetails(SessionSummary):
    """A session with its state."""

    state: dict[str, Any]
    usage: Usage | None


class SessionPage(TypedDict):
    """Sessions, newest first."""

    sessions: list[SessionSummary]
    next_cursor: str | None


class ReplyAnswer(TypedDict):
    """The job that goes on."""

    session_id: str
    job_id: str
    status: PublicStatus


class Health(TypedDict):
    """The fleet's evidence and totals; what could not be read is null, and `evidence["ready"]` false."""

    generated_at: str
    sessions: dict[str, Any] | None
    goals: dict[str, Any] | None
    domains: dict[str, Any] | None
    dispatch_workers: list[dict[str, Any]] | None
    evidence: dict[str, Any]


class Topology(TypedDict):
    """What runs where: a page of sessions by domain, the goals, the live workers."""

    generated_at: str
    domains: list[dict[str, Any]] | None
    goals: list[dict[str, Any]] | None
    dispatch_workers: list[dict[str, Any]] | None
    totals: dict[str, Any] | None
    page: dict[str, Any]
    evidence: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamEvent:
    """One event of a job's stream: `text`, `progress` or `status`, with the data that REST sends.

    A stream that is opened `after` an id goes on behind the output of that id. The data of `text` and `progress` has
    the `epoch` of the run that said it: a higher one than before begins a new run.
    """

    id: int
    event: str
    data: Any
