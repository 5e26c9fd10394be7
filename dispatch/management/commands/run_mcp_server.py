"""Serve the Model Context Protocol."""

from __future__ import annotations

import re
import socket
import sys
from importlib.util import find_spec
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from dispatch import wiring
from dispatch.errors import DispatchError, McpUnavailable
from dispatch.mcp.twin import refusal_of
from dispatch.network import silence
from dispatch.worker_registry import product_version

EXIT_REFUSED = 2
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


class Command(BaseCommand):
    help = "Serves the operations of the REST API as tools of the Model Context Protocol, over stdio or HTTP."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--http",
            metavar="HOST:PORT",
            help="serve streamable HTTP at /mcp there, each request with an API key of its own; without it the server "
            "speaks on stdin and stdout with the key of AGENT_API_KEY_FILE",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if find_spec("mcp") is None:
                raise McpUnavailable("run_mcp_server needs the package mcp: pip install -r requirements-mcp.txt")
            wiring.registry()
            wiring.tracer()
            silence.answers_callers()
            if options["http"] is None:
                self._on_stdio()
            else:
                self._on_http(options["http"])
            wiring.tracer().close()
        except DispatchError as error:
            self.stderr.write(error.message)
            sys.exit(EXIT_REFUSED)

    @staticmethod
    def _on_stdio() -> None:
        import anyio

        from dispatch.mcp.server import serve_stdio

        file = wiring.config().agent_api_key_file
        if file is None:
            raise McpUnavailable(
                "AGENT_API_KEY_FILE: must name a file with an API key; with --http each request has its own"
            )
        key = file.read_text().strip()
        if refusal_of({"authorization": f"Bearer {key}"}) is not None:
            raise McpUnavailable("AGENT_API_KEY_FILE: its key is unknown, expired or revoked, or cannot be looked up")
        anyio.run(serve_stdio, product_version(), key)

    def _on_http(self, address: str) -> None:
        from dispatch.mcp.http import serve_http

        listener = _listen(address)
        host, port = listener.getsockname()[:2]
        self.stderr.write(f"MCP at http://{host}:{port}/mcp")
        serve_http(product_version(), listener, wiring.config().django_allowed_hosts)


def _listen(address: str) -> socket.socket:
    """Raises McpUnavailable for what is no address, or one that cannot be taken."""
    parts = _ADDRESS.fullmatch(address)
    if parts is None or int(parts["port"]) > 65535:
        raise McpUnavailable("--http: must be HOST:PORT, such as 127.0.0.1:8100; port 0 takes a free one")
    host = parts["host"].strip("[]")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, int(parts["port"])), family=family)
    except OSError as error:
        raise McpUnavailable(f"--http: {address} cannot be taken ({type(error).__name__})") from None
