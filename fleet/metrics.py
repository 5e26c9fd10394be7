"""Store-wide metrics, read at scrape time. A value that cannot be read is absent, never 0."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from dispatch import usage, wiring
from dispatch.webhooks.selectors import delivery_totals, oldest_pending_s
from fleet import goals, schedules, selectors
from fleet.reads import Reads

log = logging.getLogger(__name__)


class FleetCollector(Collector):
    """What the stores say of the whole fleet; each metric read for itself."""

    def collect(self) -> Iterator[Metric]:
        with Reads() as reads:
            found = [_read(reads, metric) for metric in METRICS]
        yield from (metric for metric in found if metric is not None)

    def describe(self) -> list[Metric]:
        """Nothing: registering must not read the stores."""
        return []


def exposition(*, accept: str, store_wide: bool) -> tuple[bytes, str]:
    """The scrape and its content type: the series of all web processes of this server, and the stores' if asked for.

    Several processes share PROMETHEUS_MULTIPROC_DIR; a process alone has its own registry.
    """
    encode, content_type = choose_encoder(accept)
    registry = CollectorRegistry()
    if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    else:
        registry.register(_Own())
    if store_wide:
        registry.register(FleetCollector())
    return encode(registry), content_type


class _Own(Collector):
    """This process's own series."""

    def collect(self) -> Iterator[Metric]:
        yield from REGISTRY.collect()

    def describe(self) -> list[Metric]:
        return []


def _read(reads: Reads, metric: Callable[[], Metric | None]) -> Metric | None:
    """Any failure leaves the metric out: a scrape must still carry the others."""
    try:
        return reads.read(metric)
    except Exception as error:
        log.warning("fleet metric not read", extra={"metric": metric.__name__, "error": type(error).__name__})
        return None


def _depth() -> Metric:
    transport = wiring.transport()
    metric = GaugeMetricFamily(
        "agent_utilities_dispatch_queue_depth",
        "Unfinished turns that are not suspended; with Kafka the group's lag.",
        labels=["backend"],
    )
    metric.add_metric([transport.name], transport.depth())
    return metric


def _workers() -> Metric:
    return GaugeMetricFamily("agent_utilities_dispatch_workers", "Live consumers.", value=len(selectors.workers_live()))


def _workers_silent() -> Metric:
    return GaugeMetricFamily(
        "agent_utilities_dispatch_workers_silent",
        "Consumers that are registered and have not been heard of for AGENT_WORKER_STALE_S.",
        value=selectors.workers_silent(),
    )


def _turns() -> Metric:
    metric = CounterMetricFamily(
        "agent_utilities_dispatch_turns", "Turns that ended, since the store was made.", labels=["outcome"]
    )
    for outcome, total in selectors.turn_totals().items():
        metric.add_metric([outcome], total)
    return metric


def _without_worker() -> Metric:
    return GaugeMetricFamily(
        "agent_utilities_dispatch_turns_without_worker",
        "Turns that are next in their session and whose agent no live worker has.",
        value=selectors.turns_without_worker(selectors.workers_live()),
    )


def _gates() -> Metric:
    metric = GaugeMetricFamily(
        "agent_utilities_dispatch_claim_gates", "Pauses of claiming that are in force, by scope.", labels=["scope"]
    )
    for scope, count in selectors.gate_totals().items():
        metric.add_metric([scope], count)
    return metric


def _oldest_ready() -> Metric:
    ready = selectors.ready_turns(tenant=None)
    return GaugeMetricFamily(
        "agent_utilities_dispatch_oldest_ready_age_seconds",
        "How long the oldest claimable turn has waited; 0 when none is claimable.",
        value=ready.oldest_s or 0.0,
    )


def _pruned() -> Metric:
    metric = CounterMetricFamily(
        "agent_utilities_dispatch_pruned_rows", "Rows that retention has deleted.", labels=["table"]
    )
    for table, rows in selectors.pruned_totals().items():
        metric.add_metric([table], rows)
    return metric


def _retention_age() -> Metric | None:
    age = selectors.retention_age_s()
    if age is None:
        return None  # no worker has ever come to it
    return GaugeMetricFamily(
        "agent_utilities_dispatch_retention_age_seconds", "Since a round of retention last ended well.", value=age
    )


def _schedule_runs() -> Metric:
    metric = CounterMetricFamily(
        "agent_utilities_dispatch_schedule_runs",
        "Due times of schedules and runs on demand, by what became of them; refused ones are counted at each try.",
        labels=["outcome"],
    )
    for outcome, totals in schedules.schedule_totals().items():
        metric.add_metric([outcome], totals.count)
    return metric


def _schedule_late() -> Metric:
    return CounterMetricFamily(
        "agent_utilities_dispatch_schedule_late_seconds",
        "How late the due times that were not missed were settled, all together.",
        value=sum(totals.late_s for totals in schedules.schedule_totals().values()),
    )


def _schedules_overdue() -> Metric:
    return GaugeMetricFamily(
        "agent_utilities_dispatch_schedules_overdue",
        "Schedules whose next run should have been dispatched some ticks ago, refused ones among them.",
        value=schedules.schedules_overdue(),
    )


def _goals() -> Metric:
    metric = GaugeMetricFamily(
        "agent_utilities_dispatch_goals", "Goals that have not ended, by status.", labels=["status"]
    )
    for status, count in goals.goals_by_status().items():
        metric.add_metric([status], count)
    return metric


def _goal_iterations() -> Metric:
    metric = CounterMetricFamily(
        "agent_utilities_dispatch_goal_iterations",
        "Committed iterations of goals, by what their validation said, since the store was made.",
        labels=["result"],
    )
    for result, total in goals.iteration_totals().items():
        metric.add_metric([result], total)
    return metric


def _model_tokens() -> Metric:
    metric = CounterMetricFamily(
        "agent_utilities_dispatch_model_tokens",
        "Tokens that agents sent to and got from models, since the store was made.",
        labels=["agent", "direction"],
    )
    for total in usage.model_totals():
        metric.add_metric([total.agent_name, "input"], total.input_tokens)
        metric.add_metric([total.agent_name, "output"], total.output_tokens)
    return metric


def _model_requests() -> Metric:
    metric = CounterMetricFamily(
        "agent_utilities_dispatch_model_requests",
        "Requests of agents to models that were not refused, since the store was made.",
        labels=["agent"],
    )
    for total in usage.model_totals():
        metric.add_metric([total.agent_name], total.requests)
    return metric


def _webhooks() -> Metric:
    metric = GaugeMetricFamily(
        "agent_utilities_dispatch_webhook_deliveries", "Deliveries of callbacks that were not taken.", labels=["state"]
    )
    for state, count in delivery_totals().items():
        metric.add_metric([state], count)
    return metric


def _webhooks_oldest() -> Metric:
    return GaugeMetricFamily(
        "agent_utilities_dispatch_webhook_oldest_pending_age_seconds",
        "How long the oldest delivery has waited that is still tried; 0 when none is.",
        value=oldest_pending_s(),
    )


METRICS: tuple[Callable[[], Metric | None], ...] = (
    _depth,
    _workers,
    _workers_silent,
    _turns,
    _oldest_ready,
    _without_worker,
    _gates,
    _pruned,
    _retention_age,
    _schedule_runs,
    _schedule_late,
    _schedules_overdue,
    _goals,
    _goal_iterations,
    _model_tokens,
    _model_requests,
    _webhooks,
    _webhooks_oldest,
)
