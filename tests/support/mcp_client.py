"""A client of the MCP server, by the SDK, for tests that do not run on an event loop."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

ROOT = Path(__file__).resolve().parents[2]
T = TypeVar("T")
Connect = Callable[[], AbstractAsyncContextManager[Client]]


def over_stdio(env: Mapping[str, str]) -> Connect:
    """A server process of one's own, which ends with the connection."""
    argv = ["manage.py", "run_mcp_server"]
    return lambda: Client(StdioServerParameters(command=sys.executable, args=argv, env=dict(env), cwd=ROOT))


def over_http(url: str, key: str) -> Connect:
    @asynccontextmanager
    async def connect() -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=70) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            yield client

    return connect


class Tools:
    """What may be called in one connection."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> tuple[bool, str]:
        """Whether it is an error, and the text of the answer."""
        result = await self.client.call_tool(tool, arguments)
        (content,) = result.content
        return bool(result.is_error), content.text  # type: ignore[union-attr]


def talk(connect: Connect, say: Callable[[Tools], Awaitable[T]]) -> T:
    """Connect, say it, and leave."""

    async def whole() -> T:
        async with connect() as client:
            return await say(Tools(client))

    return asyncio.run(asyncio.wait_for(whole(), 60))
