"""Everything that dispatch refuses. A class's docstring is its default message; facts are attributes."""

from __future__ import annotations

from typing import Any


class DispatchError(Exception):
    """The dispatch plane refused."""

    code = "error"
    http_status = 500

    def __init__(self, message: str | None = None, *, fields: dict[str, str] | None = None, **facts: Any) -> None:
        self.message = message or (self.__doc__ or "").strip()
        self.fields = fields or {}
        self.facts = facts
        super().__init__(self.message)


class Invalid(DispatchError):
    """The request is not valid."""

    code = "invalid"
    http_status = 400


class Forbidden(DispatchError):
    """This key's scopes do not allow it."""

    code = "forbidden"
    http_status = 403


class JobNotFound(DispatchError):
    """No such job."""

    code = "not_found"
    http_status = 404

    def __init__(self, job_id: str) -> None:
        super().__init__(f"Job {job_id} not found", job_id=job_id)
        self.job_id = job_id


class SessionNotFound(DispatchError):
    """No such session."""

    code = "not_found"
    http_status = 404


class WorkerNotFound(DispatchError):
    """No such worker."""

    code = "not_found"
    http_status = 404


class ScheduleNotFound(DispatchError):
    """No such schedule."""

    code = "not_found"
    http_status = 404


class WebhookNotFound(DispatchError):
    """The tenant has no such webhook endpoint."""

    code = "not_found"
    http_status = 404


class DeliveryNotFound(DispatchError):
    """The job has no such delivery."""

    code = "not_found"
    http_status = 404


class ScheduleExists(DispatchError):
    """A schedule of this name exists already, with other values."""

    code = "schedule_exists"
    http_status = 409


class IdempotencyConflict(DispatchError):
    """The idempotency key was used with another body."""

    code = "idempotency_conflict"
    http_status = 409


class SessionBusy(DispatchError):
    """The session has unfinished turns."""

    code = "session_busy"
    http_status = 409


class SessionExists(DispatchError):
    """The session exists already."""

    code = "session_exists"
    http_status = 409


class NotRetryable(DispatchError):
    """Only a failed, cancelled or dead-lettered job whose parents succeeded can be retried."""

    code = "not_retryable"
    http_status = 409


class NoQuestion(DispatchError):
    """Nobody asked, or it has been answered."""

    code = "no_question"
    http_status = 409


class QueueFull(DispatchError):
    """The queue is full; try again later."""

    code = "queue_full"
    http_status = 429
    retry_after_s = 5


class QueueUnavailable(DispatchError):
    """The queue cannot be used now; nothing was admitted."""

    code = "queue_unavailable"
    http_status = 503


class StoreUnavailable(DispatchError):
    """The state store cannot be used now."""

    code = "store_unavailable"
    http_status = 503


class GuardBusy(DispatchError):
    """Another process is in this critical section."""

    code = "busy"
    http_status = 503


class TaskQueueUnavailable(DispatchError):
    """A chosen transport or store cannot be reached at start."""

    code = "queue_unavailable"
    http_status = 503


class McpUnavailable(DispatchError):
    """The MCP server cannot be started."""


class TracingUnavailable(DispatchError):
    """AGENT_TRACING: OpenTelemetry is not installed; requirements-otel.txt names it."""

    code = "tracing_unavailable"
    http_status = 503


class LeaseLost(DispatchError):
    """The lease of this turn is no longer held; what it writes is refused."""

    code = "lease_lost"
    http_status = 409
