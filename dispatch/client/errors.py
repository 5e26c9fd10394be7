"""What the client raises. One class for each code of the REST API, and a few for what never became an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class ClientError(Exception):
    """Anything that this client raises of itself."""


class ClientMisuse(ClientError, ValueError):
    """The client was made or called with what can never work."""


class ConnectionLost(ClientError):
    """The server could not be reached, or the connection broke, as often as it was tried."""


class BadAnswer(ClientError):
    """The answer is not one of this API: something else speaks at that address."""


class ApiError(ClientError):
    """A refusal. `code`, `message`, `fields` and `status` are those of REST; `retry_after_s` of its `Retry-After`."""

    code: str = "error"
    usual_status: ClassVar[int] = 500

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        fields: Mapping[str, str] | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status or self.usual_status
        self.fields = dict(fields or {})
        self.retry_after_s = retry_after_s
        if code is not None:
            self.code = code  # one that this client does not know yet keeps its name


class Invalid(ApiError):
    code = "invalid"
    usual_status = 400


class Unauthenticated(ApiError):
    code = "unauthenticated"
    usual_status = 401


class Forbidden(ApiError):
    code = "forbidden"
    usual_status = 403


class NotFound(ApiError):
    code = "not_found"
    usual_status = 404


class MethodNotAllowed(ApiError):
    code = "method_not_allowed"
    usual_status = 405


class IdempotencyConflict(ApiError):
    code = "idempotency_conflict"
    usual_status = 409


class SessionBusy(ApiError):
    code = "session_busy"
    usual_status = 409


class SessionExists(ApiError):
    code = "session_exists"
    usual_status = 409


class NotRetryable(ApiError):
    code = "not_retryable"
    usual_status = 409


class NoQuestion(ApiError):
    code = "no_question"
    usual_status = 409


class TooLarge(ApiError):
    code = "too_large"
    usual_status = 413


class UnsupportedMediaType(ApiError):
    code = "unsupported_media_type"
    usual_status = 415


class QueueFull(ApiError):
    code = "queue_full"
    usual_status = 429


class RateLimited(ApiError):
    code = "rate_limited"
    usual_status = 429


class QueueUnavailable(ApiError):
    code = "queue_unavailable"
    usual_status = 503


class StoreUnavailable(ApiError):
    code = "store_unavailable"
    usual_status = 503


CLASSES: Mapping[str, type[ApiError]] = {kind.code: kind for kind in ApiError.__subclasses__()}


def error_of(body: object, *, status: int | None = None, retry_after_s: float | None = None) -> ApiError | None:
    """The error that a body tells of, or None when it is no refusal of this API.

    Without a status (one answer of a list) it has that of its code.
    """
    if not isinstance(body, dict):
        return None
    if body.get("status") == "not_found" and isinstance(body.get("error"), str):
        return NotFound(body["error"], status=status)
    code, message, fields = body.get("code"), body.get("message"), body.get("fields")
    if body.get("status") != "error" or not isinstance(code, str) or not isinstance(message, str):
        return None
    kind = CLASSES.get(code, ApiError)
    named: Any = fields if isinstance(fields, dict) else {}
    return kind(message, status=status, fields=named, code=code, retry_after_s=retry_after_s)


class JobFailed(ClientError):
    """The job ended otherwise than succeeded. `code` and `message` are its error's, `status` how it ended."""

    def __init__(self, job_id: str, *, status: str, code: str, message: str) -> None:
        super().__init__(f"job {job_id} ended as {status}: {message or code}")
        self.job_id = job_id
        self.status = status
        self.code = code
        self.message = message


class JobUnfinished(ClientError, TimeoutError):
    """The time to wait is over, and the job has not ended; it goes on."""

    def __init__(self, job_id: str, *, status: str) -> None:
        super().__init__(f"job {job_id} is {status} and has not ended within the time given")
        self.job_id = job_id
        self.status = status
