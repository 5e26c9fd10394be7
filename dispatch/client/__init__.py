"""The Python client of the REST API: `Client` and `AsyncClient`. It needs httpx2 and no Django."""

from __future__ import annotations

from dispatch.client.aio import AsyncClient, AsyncJob
from dispatch.client.errors import (
    ApiError,
    BadAnswer,
    ClientError,
    ClientMisuse,
    ConnectionLost,
    Forbidden,
    IdempotencyConflict,
    Invalid,
    JobFailed,
    JobUnfinished,
    MethodNotAllowed,
    NoQuestion,
    NotFound,
    NotRetryable,
    QueueFull,
    QueueUnavailable,
    RateLimited,
    SessionBusy,
    SessionExists,
    StoreUnavailable,
    TooLarge,
    Unauthenticated,
    UnsupportedMediaType,
)
from dispatch.client.shapes import StreamEvent
from dispatch.client.sync import Client, Job

__all__ = [
    "ApiError",
    "AsyncClient",
    "AsyncJob",
    "BadAnswer",
    "Client",
    "ClientError",
    "ClientMisuse",
    "ConnectionLost",
    "Forbidden",
    "IdempotencyConflict",
    "Invalid",
    "Job",
    "JobFailed",
    "JobUnfinished",
    "MethodNotAllowed",
    "NoQuestion",
    "NotFound",
    "NotRetryable",
    "QueueFull",
    "QueueUnavailable",
    "RateLimited",
    "SessionBusy",
    "SessionExists",
    "StoreUnavailable",
    "StreamEvent",
    "TooLarge",
    "Unauthenticated",
    "UnsupportedMediaType",
]
