"""The server of the official SDK: lists the tools, and has each call answered in a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import anyio
from anyio.to_thread import run_sync
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from dispatch.mcp.schemas import tools
from dispatch.mcp.twin import Answer, Headers, answer_tool

CALLS_AT_ONCE = 40
KEPT_HEADERS = ("authorization", "x-request-id", "traceparent")

Context = ServerRequestContext[Any]


def make_server(version: str, headers_of: Callable[[Context], Headers]) -> Server[Any]:
    """`headers_of` says what a call's request carries: the key above all."""
    listed = [types.Tool.model_validate(tool) for tool in tools()]
    at_once = anyio.CapacityLimiter(CALLS_AT_ONCE)

    async def list_tools(context: Context, asked: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(context: Context, asked: types.CallToolRequestParams) -> types.CallToolResult:
        call = partial(answer_tool, asked.name, asked.arguments or {}, headers_of(context))
        return _result(await run_sync(call, limiter=at_once))

    return Server("fleetsite", version=version, on_list_tools=list_tools, on_call_tool=call_tool)


def _result(answer: Answer) -> types.CallToolResult:
    """REST's body as it is. A health that is not ready (503 with evidence) is an answer like any other."""
    text = answer.body.decode()
    failed = answer.status >= 400 and not text.startswith('{"generated_at"')
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=failed)


def headers_of_http(context: Context) -> Headers:
    """Those of the client's own request that REST looks at."""
    sent: Mapping[str, str] = context.request.headers if context.request is not None else {}
    return {name: sent[name] for name in KEPT_HEADERS if name in sent}


async def serve_stdio(version: str, key: str) -> None:
    """Speak on stdin and stdout, as the holder of one key, until stdin ends."""
    server = make_server(version, lambda context: {"authorization": f"Bearer {key}"})
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())
