"""An HTTP front before a server of this machine that fails by a script: it refuses, or loses answers, or serves."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

REFUSED = {"status": "error", "code": "store_unavailable", "message": "The state store is away.", "fields": {}}


class Front:
    """`with Front(port, "refuse", "lose") as front:` the first request gets 503, the answer of the second is lost.

    `refuse` does not ask the server; `lose` asks it, waits for its answer, and breaks the connection.
    """

    def __init__(self, target_port: int, *script: str) -> None:
        self.seen: list[dict[str, Any]] = []  # the bodies of all requests, in order
        front, steps = self, iter(script)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                front.seen.append(json.loads(body))
                step = next(steps, "pass")
                if step == "refuse":
                    return self._answer(503, json.dumps(REFUSED).encode())
                with closing(http.client.HTTPConnection("127.0.0.1", target_port, timeout=60)) as connection:
                    names = ("Authorization", "Content-Type")
                    connection.request("POST", self.path, body, {name: self.headers[name] for name in names})
                    got = connection.getresponse()
                    status, answer = got.status, got.read()
                if step == "lose":
                    self.close_connection = True
                    return None
                return self._answer(status, answer)

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Tests read no log of it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="front", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
