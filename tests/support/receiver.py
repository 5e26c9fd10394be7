"""A real receiver of callbacks on loopback: it keeps what came, and answers by a script, then 200."""

from __future__ import annotations

import json
import ssl
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.processes import until

HANG, DRIP = "hang", "drip"


@dataclass(frozen=True)
class Call:
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


class Receiver:
    """`with Receiver(500, HANG) as receiver:` refuses the first call, never answers the second, takes the others."""

    def __init__(self, *script: int | str, certificate: Path | None = None) -> None:
        self.calls: list[Call] = []
        self.let_go = threading.Event()  # ends what hangs
        receiver, steps = self, iter(script)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                names = {name.lower(): value for name, value in self.headers.items()}
                step = next(steps, 200)
                receiver.calls.append(Call(self.path, names, raw))
                if step == HANG:
                    receiver.let_go.wait(60)
                    return
                if step == DRIP:
                    self._drip()
                    return
                self.send_response(int(step))
                if 300 <= int(step) < 400:
                    self.send_header("Location", f"http://127.0.0.1:{receiver.port}/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def _drip(self) -> None:
                """A header line that never ends, a byte at a time."""
                try:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
                    while not receiver.let_go.wait(0.1):
                        self.wfile.write(b"x")
                except OSError:
                    return

            def log_message(self, format: str, *args: Any) -> None:
                """Tests read no log of it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port: int = self._server.server_address[1]
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"http://127.0.0.1:{self.port}/hooks"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, name="receiver", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, count: int, within: float = 20) -> list[Call]:
        """The calls, as soon as there are so many."""
        until(lambda: len(self.calls) >= count, within, f"{count} callbacks come")
        return list(self.calls)
