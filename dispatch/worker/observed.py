"""The subscribers of a worker's events: its log, and Prometheus series of its own process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from prometheus_client import REGISTRY, Counter, Gauge, Histogram, Metric, start_http_server
from prometheus_client.core import GaugeMetricFamily

from dispatch.errors import TaskQueueUnavailable
from dispatch.ports import Lease, Settled
from dispatch.states import COUNTER_OUTCOMES
from dispatch.worker.events import LoggedEvents
from dispatch.worker_ports import WorkerEvents

RUN_S = (0.01, 0.05, 0.25, 1, 5, 15, 60, 300, 1800, 7200)
LOOPBACK = "127.0.0.1"
PREFIX = "agent_utilities_dispatch"


class DepthCollector:
    """The queue's depth, read at scrape; absent when the read fails."""

    def __init__(self, backend: str, read: Callable[[], int]) -> None:
        self._backend = backend
        self._read = read

    def collect(self) -> Iterable[Metric]:
        try:
            depth = self._read()
        except Exception:  # whatever it is, an unread depth is no number
            return
        family = GaugeMetricFamily(
            f"{PREFIX}_queue_depth",
            "Unfinished turns that are not suspended; with Kafka the group's lag.",
            labels=["backend"],
        )
        family.add_metric([self._backend], depth)
        yield family


class MeasuredEvents:
    """The metrics subscriber; labels are bounded by what this process can say."""

    def __init__(self, consumers: int) -> None:
        Gauge(f"{PREFIX}_workers", "Consumers of this process.").set(consumers)
        self._turns = Counter(f"{PREFIX}_turns", "Turns that this process ended, by outcome.", ["outcome"])
        for outcome in COUNTER_OUTCOMES:
            self._turns.labels(outcome=outcome)
        self._run_s = Histogram(
            f"{PREFIX}_run_seconds", "How long runs took, by how they ended.", ["end"], buckets=RUN_S
        )
        self._claims = Counter(f"{PREFIX}_claims", "Turns claimed by this process.")
        self._settled = Counter(f"{PREFIX}_settled", "Turns settled by this process, by what was written.", ["status"])
        self._refused = Counter(f"{PREFIX}_commits_refused", "Finished runs whose lease was no longer held.")
        self._lost = Counter(f"{PREFIX}_leases_lost", "Leases that could not be renewed in time.")
        self._stuck = Counter(f"{PREFIX}_runs_stuck", "Runs that did not stop within their grace.")
        self._blind = Counter(f"{PREFIX}_store_errors", "Rounds in which the store could not be reached.")

    def claimed(self, lease: Lease) -> None:
        self._claims.inc()

    def ended(self, lease: Lease, outcome: str, run_s: float) -> None:
        self._run_s.labels(end=outcome).observe(run_s)

    def settled(self, settled: Settled, lease: Lease) -> None:
        self._settled.labels(status=settled.status).inc()
        if settled.outcome:
            self._turns.labels(outcome=settled.outcome).inc()

    def refused(self, lease: Lease) -> None:
        self._refused.inc()

    def lease_lost(self, lease: Lease) -> None:
        self._lost.inc()

    def stuck(self, lease: Lease) -> None:
        self._stuck.inc()

    def blind(self, error: Exception, seconds: float) -> None:
        self._blind.inc()


class _All:
    """Says each event to every subscriber."""

    def __init__(self, subscribers: Sequence[WorkerEvents]) -> None:
        self._subscribers = subscribers

    def claimed(self, lease: Lease) -> None:
        for subscriber in self._subscribers:
            subscriber.claimed(lease)

    def ended(self, lease: Lease, outcome: str, run_s: float) -> None:
        for subscriber in self._subscribers:
            subscriber.ended(lease, outcome, run_s)

    def settled(self, settled: Settled, lease: Lease) -> None:
        for subscriber in self._subscribers:
            subscriber.settled(settled, lease)

    def refused(self, lease: Lease) -> None:
        for subscriber in self._subscribers:
            subscriber.refused(lease)

    def lease_lost(self, lease: Lease) -> None:
        for subscriber in self._subscribers:
            subscriber.lease_lost(lease)

    def stuck(self, lease: Lease) -> None:
        for subscriber in self._subscribers:
            subscriber.stuck(lease)

    def blind(self, error: Exception, seconds: float) -> None:
        for subscriber in self._subscribers:
            subscriber.blind(error, seconds)


def observe(
    metrics_port: int | None, *, address: str = LOOPBACK, consumers: int, backend: str, depth: Callable[[], int]
) -> WorkerEvents:
    """The log, and with a port its metrics too. Raises TaskQueueUnavailable when the port or address cannot be used."""
    if metrics_port is None:
        return LoggedEvents()
    try:
        start_http_server(metrics_port, addr=address)
    except (OSError, OverflowError) as error:
        why = f"{metrics_port} cannot be used at --metrics-address {address} ({type(error).__name__})"
        raise TaskQueueUnavailable(f"--metrics-port: {why}") from error
    REGISTRY.register(DepthCollector(backend, depth))
    return _All([LoggedEvents(), MeasuredEvents(consumers)])
