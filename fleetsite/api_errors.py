"""Every error of the HTTP API as JSON: `{"status": "error", "code", "message", "fields"}`, and nothing of the inside.

`exception_handler` serves Django REST framework; the `handler…` functions serve what fails outside of it.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import sys
from collections.abc import Mapping
from typing import Any

import psycopg
from django.core.exceptions import PermissionDenied, RequestDataTooBig, SuspiciousOperation
from django.db import DatabaseError, DataError, IntegrityError, InterfaceError, NotSupportedError, ProgrammingError
from django.http import Http404, HttpRequest, HttpResponseBase, JsonResponse
from django.http.request import UnreadablePostError
from django.views import defaults
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import set_rollback

from dispatch.errors import DispatchError, JobNotFound, StoreUnavailable

logger = logging.getLogger("fleetsite.api")

Answer = tuple[int, dict[str, Any], dict[str, str]]  # HTTP status, body, headers

_STORE_FAILURES = (DatabaseError, InterfaceError, sqlite3.OperationalError, psycopg.OperationalError)
_OUR_FAULTS = (
    DataError,
    IntegrityError,
    NotSupportedError,
    ProgrammingError,
)  # a bug of ours, not a store that is away
_UNKNOWN_KEY = "This key is unknown, expired or revoked; send an API key: Authorization: Bearer KEY."
_FRAMEWORK: Mapping[type[exceptions.APIException], tuple[int, str, str]] = {
    exceptions.MethodNotAllowed: (405, "method_not_allowed", "This address does not take this method."),
    exceptions.UnsupportedMediaType: (415, "unsupported_media_type", "The body must be application/json."),
    exceptions.NotAcceptable: (406, "not_acceptable", "This address answers in another format."),
    exceptions.ParseError: (400, "invalid", "The body is not valid JSON."),
    exceptions.NotFound: (404, "not_found", "Nothing is here."),
    exceptions.PermissionDenied: (403, "forbidden", "This caller may not do that."),
}


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response:
    """Answer any exception of a view; what is no refusal is logged and answered 500."""
    set_rollback()
    status, body, headers = answer(error)
    return Response(body, status=status, headers=headers)


def answer(error: BaseException | None) -> Answer:
    """The status, body and headers for an exception. None stands for an unknown one."""
    if isinstance(error, JobNotFound):
        return 404, {"status": "not_found", "error": error.message}, {}
    if isinstance(error, DispatchError):
        retry_after = error.facts.get("retry_after_s", getattr(error, "retry_after_s", None))
        if error.http_status >= 500:
            logger.warning("request refused", extra={"code": error.code, "error": type(error).__name__})
        return refuse(error.http_status, error.code, error.message, error.fields, retry_after_s=retry_after)
    if is_store_failure(error):
        logger.warning("state store failed", extra={"error": type(error).__name__})
        return refuse(503, StoreUnavailable.code, str(StoreUnavailable()))
    if isinstance(error, exceptions.APIException):
        return _answer_framework(error)
    if isinstance(error, Http404):
        return refuse(404, "not_found", "Nothing is here.")
    if isinstance(error, PermissionDenied):
        return refuse(403, "forbidden", "This caller may not do that.")
    if isinstance(error, RequestDataTooBig):
        return refuse(413, "too_large", "The body is too large.")
    if isinstance(error, SuspiciousOperation | UnreadablePostError):
        return refuse(400, "invalid", "The request is not valid.")
    logger.error("request failed", exc_info=error)
    return refuse(500, "error", "Something went wrong here; it has been logged.")


def _answer_framework(error: exceptions.APIException) -> Answer:
    if isinstance(error, exceptions.NotAuthenticated | exceptions.AuthenticationFailed):
        unknown = isinstance(error, exceptions.AuthenticationFailed)
        message = _UNKNOWN_KEY if unknown else "Send an API key: Authorization: Bearer KEY."
        status, body, _ = refuse(401, "unauthenticated", message)
        return status, body, {"WWW-Authenticate": "Bearer"}
    if isinstance(error, exceptions.Throttled):
        return refuse(
            429, "rate_limited", "Too many requests with this key.", retry_after_s=getattr(error, "wait", None) or 1
        )
    if isinstance(error, exceptions.ValidationError):
        given = error.detail if isinstance(error.detail, dict) else {}
        return refuse(400, "invalid", "The request is not valid.", {str(key): "is not valid" for key in given})
    for kind, (status, code, message) in _FRAMEWORK.items():
        if isinstance(error, kind):
            return refuse(status, code, message)
    if error.status_code >= 500:
        logger.error("request failed", exc_info=error)
        return refuse(error.status_code, "error", "Something went wrong here; it has been logged.")
    return refuse(error.status_code, error.default_code, str(error.detail))


def refuse(
    status: int,
    code: str,
    message: str,
    fields: Mapping[str, str] | None = None,
    *,
    retry_after_s: float | None = None,
) -> Answer:
    headers = {} if retry_after_s is None else {"Retry-After": str(max(1, math.ceil(retry_after_s)))}
    return status, {"status": "error", "code": code, "message": message, "fields": dict(fields or {})}, headers


def is_store_failure(error: BaseException | None) -> bool:
    """Whether the state store is away or broken: an unreachable server, a lost file, a drained pool."""
    return isinstance(error, _STORE_FAILURES) and not isinstance(error, _OUR_FAULTS)


def handler400(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if not _is_api(request):
        return defaults.bad_request(request, exception)
    return _json(answer(exception if isinstance(exception, SuspiciousOperation) else SuspiciousOperation()))


def handler403(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if not _is_api(request):
        return defaults.permission_denied(request, exception)
    return _json(answer(PermissionDenied()))


def handler404(request: HttpRequest, exception: Exception) -> HttpResponseBase:
    if not _is_api(request):
        return defaults.page_not_found(request, exception)
    return _json(answer(Http404()))


def handler500(request: HttpRequest) -> HttpResponseBase:
    """Django calls this inside its `except`, and has logged the error."""
    error = sys.exc_info()[1]
    if not _is_api(request):
        return defaults.server_error(request)
    if is_store_failure(error):
        return _json(answer(error))
    return _json(refuse(500, "error", "Something went wrong here; it has been logged."))


def _is_api(request: HttpRequest) -> bool:
    return request.path.startswith("/api/")


def _json(answered: Answer) -> JsonResponse:
    status, body, headers = answered
    return JsonResponse(body, status=status, headers=headers)
