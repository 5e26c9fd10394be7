"""What each exception looks like from outside."""

from __future__ import annotations

import json
import logging
import sqlite3
from typing import Any

import psycopg_pool
import pytest
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import DatabaseError, IntegrityError, InterfaceError, OperationalError, ProgrammingError
from django.http import Http404
from django.test import RequestFactory
from rest_framework import exceptions

from dispatch import errors
from fleetsite import api_errors

SECRET = "postgresql://me:word@host/db at /srv/app/views.py"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.Invalid(fields={"task": "is missing"}), 400, "invalid"),
        (errors.Forbidden(), 403, "forbidden"),
        (errors.SessionNotFound(), 404, "not_found"),
        (errors.IdempotencyConflict(fields={"task": "differs"}), 409, "idempotency_conflict"),
        (errors.SessionBusy(), 409, "session_busy"),
        (errors.NotRetryable(), 409, "not_retryable"),
        (errors.NoQuestion(), 409, "no_question"),
        (errors.QueueFull(), 429, "queue_full"),
        (errors.QueueUnavailable(), 503, "queue_unavailable"),
        (errors.StoreUnavailable(), 503, "store_unavailable"),
        (exceptions.NotAuthenticated(), 401, "unauthenticated"),
        (exceptions.AuthenticationFailed(SECRET), 401, "unauthenticated"),
        (exceptions.PermissionDenied(), 403, "forbidden"),
        (exceptions.MethodNotAllowed("PUT"), 405, "method_not_allowed"),
        (exceptions.UnsupportedMediaType("text/plain"), 415, "unsupported_media_type"),
        (exceptions.ParseError(SECRET), 400, "invalid"),
        (exceptions.ValidationError({"limit": [SECRET]}), 400, "invalid"),
        (exceptions.Throttled(wait=3.2), 429, "rate_limited"),
        (exceptions.NotFound(), 404, "not_found"),
        (Http404(SECRET), 404, "not_found"),
        (PermissionDenied(SECRET), 403, "forbidden"),
        (SuspiciousOperation(SECRET), 400, "invalid"),
        (RequestDataTooBig(SECRET), 413, "too_large"),
        (OperationalError(SECRET), 503, "store_unavailable"),
        (InterfaceError(SECRET), 503, "store_unavailable"),
        (DatabaseError(SECRET), 503, "store_unavailable"),
        (sqlite3.OperationalError(SECRET), 503, "store_unavailable"),
        (psycopg_pool.PoolTimeout(SECRET), 503, "store_unavailable"),
        (IntegrityError(SECRET), 500, "error"),
        (ProgrammingError(SECRET), 500, "error"),
        (exceptions.APIException(SECRET), 500, "error"),
        (ValueError(SECRET), 500, "error"),
        (RecursionError(SECRET), 500, "error"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_an_error_has_its_status_and_code_and_tells_nothing_of_the_inside(
    error: Exception, status: int, code: str
) -> None:
    answer = api_errors.exception_handler(error, {})
    assert answer.status_code == status
    assert set(answer.data) == {"status", "code", "message", "fields"}
    assert (answer.data["status"], answer.data["code"]) == ("error", code)
    assert answer.data["message"]
    assert SECRET not in json.dumps(answer.data)


def test_fields_come_through() -> None:
    answer = api_errors.exception_handler(errors.Invalid(fields={"task": "is missing"}), {})
    assert answer.data["fields"] == {"task": "is missing"}


def test_an_unknown_job_has_a_body_of_its_own() -> None:
    answer = api_errors.exception_handler(errors.JobNotFound("orch-1"), {})
    assert answer.status_code == 404
    assert answer.data == {"status": "not_found", "error": "Job orch-1 not found"}


@pytest.mark.parametrize(
    ("error", "seconds"),
    [(errors.QueueFull(), "5"), (errors.QueueFull(retry_after_s=0.2), "1"), (exceptions.Throttled(wait=3.2), "4")],
)
def test_who_should_come_later_is_told_when(error: Exception, seconds: str) -> None:
    assert api_errors.exception_handler(error, {}).headers["Retry-After"] == seconds


def test_the_unexpected_is_logged_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, logger="fleetsite.api"):
        api_errors.exception_handler(ValueError("odd"), {})
    assert [record.exc_info is not None for record in caplog.records] == [True]


def test_a_missing_address_is_json_below_api_and_a_page_elsewhere(rf: RequestFactory) -> None:
    answer = api_errors.handler404(rf.get("/api/nothing"), Http404())
    assert answer.status_code == 404
    assert body(answer)["code"] == "not_found"
    assert api_errors.handler404(rf.get("/nothing"), Http404()).headers["Content-Type"].startswith("text/html")


def test_a_crash_outside_a_view_is_json_below_api(rf: RequestFactory) -> None:
    assert body(api_errors.handler500(rf.get("/api/x")))["code"] == "error"
    try:
        raise OperationalError(SECRET)
    except OperationalError:
        answer = api_errors.handler500(rf.get("/api/x"))
    assert (answer.status_code, body(answer)["code"]) == (503, "store_unavailable")


def test_a_bad_request_outside_a_view_is_json_below_api(rf: RequestFactory) -> None:
    assert api_errors.handler400(rf.get("/api/x"), RequestDataTooBig()).status_code == 413
    assert body(api_errors.handler400(rf.get("/api/x"), ValueError(SECRET)))["code"] == "invalid"
    assert body(api_errors.handler403(rf.get("/api/x"), PermissionDenied()))["code"] == "forbidden"


def body(answer: Any) -> Any:
    return json.loads(answer.content)
