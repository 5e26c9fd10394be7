"""Streamable HTTP at /mcp. Who has no key hears nothing but that."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

import uvicorn
from anyio.to_thread import run_sync
from mcp.server.transport_security import TransportSecuritySettings

from dispatch.errors import McpUnavailable
from dispatch.mcp.server import KEPT_HEADERS, headers_of_http, make_server
from dispatch.mcp.twin import refusal_of

PATH = "/mcp"
MAX_BODY = 8 * 1024 * 1024  # as the longest body of REST, a list of dispatches

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


def make_app(version: str, allowed_hosts: tuple[str, ...]) -> App:
    """No session is kept: each request stands alone, so that any of several processes may answer it."""
    hosts = [pattern for name in allowed_hosts for pattern in (name, f"{name}:*")]
    guard = TransportSecuritySettings(
        enable_dns_rebinding_protection="*" not in allowed_hosts,
        allowed_hosts=hosts,
        allowed_origins=[f"{scheme}://{pattern}" for pattern in hosts for scheme in ("http", "https")],
    )
    app = make_server(version, headers_of_http).streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        max_request_body_size=MAX_BODY,
        transport_security=guard,
    )
    return partial(_with_key, app)


async def _with_key(app: App, scope: Message, receive: Receive, send: Send) -> None:
    """Let a request through whose key opens something."""
    if scope["type"] != "http":
        return await app(scope, receive, send)
    sent = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    headers = {name: sent[name] for name in KEPT_HEADERS if name in sent}
    refused = await run_sync(refusal_of, headers)
    if refused is None:
        return await app(scope, receive, send)
    answer_headers = [(b"content-type", b"application/json"), (b"www-authenticate", b"Bearer")]
    await send({"type": "http.response.start", "status": refused.status, "headers": answer_headers})
    await send({"type": "http.response.body", "body": refused.body})


def serve_http(version: str, listener: socket.socket, allowed_hosts: tuple[str, ...]) -> None:
    """Serve until SIGTERM or SIGINT; what runs then is answered within a few seconds. Raises McpUnavailable."""
    config = uvicorn.Config(
        make_app(version, allowed_hosts),
        log_config=None,
        access_log=False,
        server_header=False,
        interface="asgi3",
        lifespan="on",
        timeout_graceful_shutdown=5,
    )
    server = uvicorn.Server(config)
    server.run(sockets=[listener])
    if not server.started:
        raise McpUnavailable
