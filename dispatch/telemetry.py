"""Traces told to an OpenTelemetry collector over OTLP/HTTP. Loaded only where AGENT_TRACING is on.

Spans have ids and the names of exception types; never a task, a result or an exception's text. The SDK reads its own
variables (OTEL_EXPORTER_OTLP_ENDPOINT, …_HEADERS, OTEL_TRACES_SAMPLER, OTEL_SERVICE_NAME) and sends in a thread of its
own: a collector that is away costs spans, and no turn.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from dispatch.ports import Lease, Settled
from dispatch.tracing import RunSpan

CLOSE_S = 3.0
SERVICE = Resource({"service.name": "fleetsite"})
_W3C = TraceContextTextMapPropagator()


class _Run:
    """The span of a run, as who runs it sees it."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self.traceparent = _text(span)

    def failed(self, kind: str) -> None:
        _fail(self._span, kind)


class Telemetry:
    """The tracer of a process that keeps traces. It is the whole process's, unless that has one of its own already."""

    def __init__(self) -> None:
        self._own: TracerProvider | None = None
        self._closing = threading.Event()
        self._closer = threading.Thread(target=self._shut_down, name="traces-end", daemon=True)
        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            resource = SERVICE.merge(OTELResourceDetector().detect())
            provider = self._own = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._own.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
            trace.set_tracer_provider(self._own)  # what an agent's libraries trace goes the same way
            # a thread that is there already: none can be started while the interpreter ends
            self._closer.start()
            atexit.register(self.close)
        self._tracer = provider.get_tracer("fleetsite")

    @contextmanager
    def dispatching(self, parent: str | None, facts: Mapping[str, str | int]) -> Iterator[str | None]:
        """A span around an admission, current inside it; answers the context that its turns carry.

        A span that is current already is its parent; else the context that the caller sent.
        """
        within = trace.get_current_span().get_span_context().is_valid
        context = None if within else _context(parent)
        with self._span("dispatch", context, SpanKind.PRODUCER, facts) as span:
            yield _text(span)

    @contextmanager
    def running(self, lease: Lease) -> Iterator[RunSpan]:
        """A span around a run, current inside it: what the agent traces or dispatches hangs on it."""
        with self._span("run", _context(lease.traceparent), SpanKind.CONSUMER, _facts(lease)) as span:
            yield _Run(span)

    def settled(self, settled: Settled, lease: Lease, *, parent: str | None, since_ns: int) -> None:
        """A span of the step that wrote the turn's end, from its beginning until now."""
        facts = {**_facts(lease), "fleetsite.status": settled.status, "fleetsite.verb": settled.verb}
        span = self._tracer.start_span(
            "settle", context=_context(parent), attributes=_named(facts), start_time=since_ns
        )
        span.end()

    def close(self) -> None:
        """Send what is left; a collector that is away holds the process up for three seconds."""
        if self._own is not None:
            self._closing.set()
            self._closer.join(CLOSE_S)

    def _shut_down(self) -> None:
        self._closing.wait()
        if self._own is not None:
            self._own.shutdown()

    @contextmanager
    def _span(
        self, name: str, context: Context | None, kind: SpanKind, facts: Mapping[str, str | int]
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name,
            context=context,
            kind=kind,
            attributes=_named(facts),
            record_exception=False,  # its text may be anybody's
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                _fail(span, type(error).__name__)
                raise


def _facts(lease: Lease) -> dict[str, str | int]:
    return {
        "job_id": lease.job_id,
        "session_id": lease.session_id,
        "tenant": lease.tenant,
        "agent_name": lease.agent_name,
        "attempt": lease.attempt,
        "turn_number": lease.turn_number,
    }


def _named(facts: Mapping[str, str | int]) -> dict[str, str | int]:
    return {name if "." in name else f"fleetsite.{name}": value for name, value in facts.items()}


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR))


def _context(traceparent: str | None) -> Context:
    """Where a span hangs; with no context it begins a trace."""
    return Context() if traceparent is None else _W3C.extract({"traceparent": traceparent}, context=Context())


def _text(span: Span) -> str | None:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context=trace.set_span_in_context(span, Context()))
    return carrier.get("traceparent")
