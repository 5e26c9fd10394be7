"""Answers a tool call by the REST API itself, in this process: the same views, checks, errors and bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any

from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler, WSGIRequest
from django.db import close_old_connections

from dispatch.errors import DispatchError
from dispatch.mcp.calls import JOBS, Call, call_for
from dispatch.services import error_body

Headers = Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What REST answers: its status and the bytes of its body."""

    status: int
    body: bytes


def answer_tool(tool: str, arguments: Mapping[str, Any], headers: Headers) -> Answer:
    """`headers` are those of the request that REST sees: Authorization, X-Request-Id, traceparent."""
    try:
        call = call_for(tool, arguments)
    except DispatchError as refused:
        return Answer(status=refused.http_status, body=json.dumps(error_body(refused)).encode())
    return _ask(call, headers)


def refusal_of(headers: Headers) -> Answer | None:
    """What REST answers to whoever sends these headers when it opens to nobody of the kind; None when it does."""
    answer = _ask(Call(method="GET", path=JOBS, query="limit=1"), headers)
    return answer if answer.status == 401 or answer.status >= 500 else None


def _ask(call: Call, headers: Headers) -> Answer:
    try:
        response = _handler().get_response(WSGIRequest(_environ(call, headers)))
        return Answer(status=response.status_code, body=getattr(response, "content", b""))
    finally:
        close_old_connections()  # as after a request: a pooled connection is given back


@cache
def _handler() -> WSGIHandler:
    return WSGIHandler()


def _environ(call: Call, headers: Headers) -> dict[str, Any]:
    body = b"" if call.body is None else json.dumps(call.body).encode()
    return {
        "REQUEST_METHOD": call.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": call.path,
        "QUERY_STRING": call.query,
        "CONTENT_TYPE": "application/json",
        "CONTENT_LENGTH": str(len(body)),
        "SERVER_NAME": _own_host(),
        "SERVER_PORT": "443",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.input": BytesIO(body),
        "wsgi.url_scheme": "https",  # nothing of it leaves the process
        **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()},
    }


def _own_host() -> str:
    """A name that this installation answers to."""
    name = next(iter(settings.ALLOWED_HOSTS), "localhost").lstrip(".")
    return "localhost" if name == "*" else name
