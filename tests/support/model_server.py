"""A server with OpenAI's chat completions, over real HTTP, that answers what a test tells it.

with ModelServer() as server:
    server.script(calls("add", a=1, b=2), says("It is ", "3."))
"""

from __future__ import annotations

import itertools
import json
import select
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.support.processes import until

HOLD_S = 60.0
WAIT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server does with one request. `hold`: wait there before the last piece until it is set."""

    pieces: Sequence[str] = ()
    tool: tuple[str, Mapping[str, Any]] | None = None
    usage: tuple[int, int] | None = (10, 5)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    finish: str = "stop"
    breaks: bool = False  # cut the connection before the end
    hold: threading.Event | None = None


def says(*pieces: str, usage: tuple[int, int] | None = (10, 5), **more: Any) -> Answer:
    return Answer(pieces=pieces, usage=usage, **more)


def calls(tool: str, usage: tuple[int, int] | None = (10, 5), **arguments: Any) -> Answer:
    return Answer(tool=(tool, arguments), finish="tool_calls", usage=usage)


def refuses(status: int, *, code: str = "", message: str = "refused", **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(status=status, headers=named, body={"error": {"message": message, "code": code, "type": code}})


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    body: dict[str, Any]
    headers: Mapping[str, str]

    @property
    def texts(self) -> list[tuple[str, str]]:
        """The messages that have a text: (role, text)."""
        return [(m["role"], m["content"]) for m in self.body["messages"] if isinstance(m.get("content"), str)]


class ModelServer:
    """Answers in the order of its script, then with `fallback`. `gone` counts clients that left in mid-answer."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.fallback: Callable[[dict[str, Any]], Answer] = lambda body: says(
            f"heard {body['messages'][-1]['content']}"
        )
        self.gone = 0
        self._script: list[Answer] = []
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": self}))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def script(self, *answers: Answer) -> None:
        with self._lock:
            self._script += answers

    def clear(self) -> None:
        with self._lock:
            self._script.clear()
            self.asked.clear()
            self.gone = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def take(self, asked: Asked) -> tuple[int, Answer]:
        with self._lock:
            self.asked.append(asked)
            answer = self._script.pop(0) if self._script else self.fallback(asked.body)
            number = next(self._numbers)
        return number, answer

    def until_asked(self, times: int = 1) -> None:
        """Wait until so many requests have come since `clear`."""
        until(lambda: len(self.asked) >= times, WAIT_S, f"the model is asked {times} times")

    def until_left(self) -> None:
        """Wait until a client has left in mid-answer."""
        until(lambda: self.gone, WAIT_S, "the connection is closed")

    def stays(self, connection: socket.socket, until: threading.Event) -> bool:
        """Wait until the event is set; False when the client left before."""
        for _ in range(int(HOLD_S / 0.05)):
            if until.is_set() or self._closing.is_set():
                return True
            readable, _, _ = select.select([connection], [], [], 0.05)
            if readable and connection.recv(1, socket.MSG_PEEK) == b"":
                self.gone += 1
                return False
        return True


class _Handler(BaseHTTPRequestHandler):
    owner: ModelServer
    model = ""  # the one that this request asks
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Nothing: a test's output is its own."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.model = body["model"]
        number, answer = self.owner.take(Asked(body, {name.lower(): value for name, value in self.headers.items()}))
        try:
            if answer.status != 200:
                self._json(answer)
            else:
                self._stream(number, answer)
        except OSError:
            self.owner.gone += 1
            self.close_connection = True

    def _json(self, answer: Answer) -> None:
        raw = json.dumps(answer.body).encode()
        self.send_response(answer.status)
        for name, value in {"Content-Type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, number: int, answer: Answer) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self._event(number, delta={"role": "assistant", "content": ""})
        for place, piece in enumerate(answer.pieces):
            last = place == len(answer.pieces) - 1
            if last and answer.hold is not None and not self.owner.stays(self.connection, answer.hold):
                self.close_connection = True
                return
            self._event(number, delta={"content": piece})
        if answer.breaks:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        if answer.tool is not None:
            name, arguments = answer.tool
            call = {"name": name, "arguments": json.dumps(arguments)}
            one = {"index": 0, "id": f"call-{number}", "type": "function", "function": call}
            self._event(number, delta={"tool_calls": [one]})
        self._event(number, finish=answer.finish)
        if answer.usage is not None:
            used = {"prompt_tokens": answer.usage[0], "completion_tokens": answer.usage[1]}
            self._event(number, usage={**used, "total_tokens": sum(answer.usage)})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(
        self,
        number: int,
        *,
        delta: Mapping[str, Any] | None = None,
        finish: str | None = None,
        usage: Mapping[str, int] | None = None,
    ) -> None:
        choices = [] if usage else [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
        event = {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion.chunk",
            "created": 1_780_000_000,
            "model": self.model,
            "choices": choices,
            "usage": usage,
        }
        self._chunk(b"data: " + json.dumps(event).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()
