"""What both transports share: the requests of httpx2, and what its answers and errors mean to the programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx2

from dispatch.client.access import Access
from dispatch.client.calls import Call, stream_path
from dispatch.client.following import SILENT_S, Open
from dispatch.client.programs import Lost, Reply

CONNECT_S = 10.0
UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=20)  # a wait or a stream holds one

TransportError = httpx2.TransportError


def options(access: Access) -> dict[str, Any]:
    """The arguments of either client. Redirects are not followed: a key goes to the address that it was given for."""
    headers = {"Authorization": f"Bearer {access.key}", "Accept-Encoding": "identity", "User-Agent": "fleetsite-client"}
    return {"headers": headers, "follow_redirects": False, "limits": LIMITS}


def request(access: Access, call: Call[Any]) -> dict[str, Any]:
    """The arguments of `build_request`."""
    body = None if call.body is None else json.dumps(call.body).encode()
    return {
        "method": call.method,
        "url": access.base_url + call.path,
        "content": body,
        "headers": {} if body is None else {"Content-Type": "application/json"},
        "timeout": httpx2.Timeout(call.read_s, connect=CONNECT_S),
    }


def stream_request(access: Access, step: Open) -> dict[str, Any]:
    return {
        "method": "GET",
        "url": access.base_url + stream_path(step.job_id),
        "headers": {"Last-Event-ID": str(step.after)} if step.after else {},
        "timeout": httpx2.Timeout(SILENT_S, connect=CONNECT_S),
    }


def is_stream(response: httpx2.Response) -> bool:
    headers: Mapping[str, str] = response.headers
    return response.status_code == 200 and headers.get("content-type", "").startswith("text/event-stream")


def reply(response: httpx2.Response) -> Reply:
    return Reply(status=response.status_code, body=response.content, retry_after=response.headers.get("retry-after"))


def lost(error: httpx2.TransportError) -> Lost:
    return Lost(why=f"no answer ({type(error).__name__})", sent=not isinstance(error, UNSENT))
