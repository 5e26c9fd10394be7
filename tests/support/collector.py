"""A collector of traces for the tests: OTLP over HTTP on a free loopback port, what it was told kept in memory."""

from __future__ import annotations

import gzip
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.processes import until


@dataclass(frozen=True, kw_only=True)
class Told:
    """One span, with its ids in hexadecimal and its times in nanoseconds."""

    name: str
    service: str
    trace_id: str
    span_id: str
    parent_id: str
    begin_ns: int
    end_ns: int
    failed: bool
    facts: dict[str, str]

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-01"


class Collector:
    """Use it as a context manager; `url` is its address."""

    def __init__(self) -> None:
        self.raw = b""
        self._spans: list[Told] = []
        self._lock = threading.Lock()
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.take(self.path, body)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                """The spans are what is looked at."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def take(self, path: str, body: bytes) -> None:
        assert path == "/v1/traces", path
        with self._lock:
            self.raw += body
            self._spans += _read(body)

    def spans(self, name: str, **facts: str) -> list[Told]:
        """Those of that name which have these facts, in the order in which they began."""
        with self._lock:
            found = [span for span in self._spans if span.name == name and facts.items() <= span.facts.items()]
        return sorted(found, key=lambda span: span.begin_ns)

    def until_told(self, name: str, *, count: int = 1, **facts: str) -> list[Told]:
        until(lambda: len(self.spans(name, **facts)) >= count, 15, f"{count} spans {name} {facts}")
        return self.spans(name, **facts)


def _read(body: bytes) -> list[Told]:
    request = ExportTraceServiceRequest.FromString(body)
    return [
        Told(
            name=span.name,
            service=_facts(resource.resource.attributes).get("service.name", ""),
            trace_id=span.trace_id.hex(),
            span_id=span.span_id.hex(),
            parent_id=span.parent_span_id.hex(),
            begin_ns=span.start_time_unix_nano,
            end_ns=span.end_time_unix_nano,
            failed=span.status.code == 2,
            facts=_facts(span.attributes),
        )
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _facts(attributes: object) -> dict[str, str]:
    facts = {}
    for pair in attributes:  # type: ignore[attr-defined]  # a container of the generated code
        kind = pair.value.WhichOneof("value")
        facts[pair.key.removeprefix("fleetsite.")] = str(getattr(pair.value, kind))
    return facts
