"""What every client of the broker is made with: settings, security options, a log, and whether the broker is there."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from pydantic import SecretStr

from dispatch.errors import TaskQueueUnavailable

TOPIC = "agent_turns"
GROUP = "agent-dispatch"
BACKOFF_MAX_MS = 2_000
METADATA_REFRESH_MS = 10_000  # within this time a consumer sees partitions that were added

log = logging.getLogger("dispatch.kafka")
_PROPERTY = re.compile(r'property:? "([a-z0-9._]+)"')
# librdkafka tells each failed attempt to connect; the watch tells it once
_CHATTER = ("FAIL", "ERROR", "FAILADDR", "REQTMOUT", "TIMEOUT", "COORD", "MAXPOLL")


@dataclass(frozen=True, kw_only=True, slots=True)
class KafkaSettings:
    """Where the broker is and how to behave with it. `options` are the client's own, each of which may be a secret."""

    servers: tuple[str, ...]
    options: Mapping[str, SecretStr] = field(default_factory=dict)
    partitions: int = 6
    publish_timeout_s: float = 5.0
    session_timeout_s: float = 45.0
    max_poll_interval_s: float = 300.0
    group_protocol: str = "classic"
    group_instance_id: str | None = None
    tuning: Mapping[str, str | int] = field(default_factory=dict)  # of the consumer's fetches

    def silent(self) -> dict[str, Any]:
        """Of a client that nobody polls: its log lines would pile up in it, so it writes none."""
        return {
            "bootstrap.servers": ",".join(self.servers),
            "client.id": "fleetsite",
            "reconnect.backoff.max.ms": BACKOFF_MAX_MS,
            "topic.metadata.refresh.interval.ms": METADATA_REFRESH_MS,
            "log_level": 0,
            **{name: secret.get_secret_value() for name, secret in self.options.items()},
        }

    def polled(self, watch: BrokerWatch) -> dict[str, Any]:
        """Of a client that is polled: its log lines go to logging, its errors to the watch."""
        return {**self.silent(), "log_level": 6, "logger": quiet_log(), "error_cb": watch.error}


def refused_option(error: KafkaException) -> TaskQueueUnavailable:
    """In words of our own: the client's would quote the value, which may be a secret."""
    found = _PROPERTY.search(str(error.args[0].str()))
    name = f"KAFKA_{found[1].upper().replace('.', '_')}" if found else "KAFKA_SECURITY_*, KAFKA_SASL_*, KAFKA_SSL_*"
    return TaskQueueUnavailable(f"{name}: the Kafka client does not take this option or its value")


class _NoChatter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(_CHATTER) and not str(record.getMessage()).startswith(_CHATTER)


def quiet_log() -> logging.Logger:
    """The logger for the client's own lines, without what the watch says better."""
    client_log = logging.getLogger("dispatch.kafka.client")
    if not client_log.filters:
        client_log.addFilter(_NoChatter())
    return client_log


class BrokerWatch:
    """Whether the broker was there when it was last spoken to; each change is said once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lost_at: float | None = None

    @property
    def is_lost(self) -> bool:
        return self._lost_at is not None

    def error(self, error: KafkaError) -> None:
        """The clients' error callback."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.lost()
        elif error.code() not in (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT):
            log.warning("kafka client error", extra={"error": error.name()})

    def lost(self) -> None:
        with self._lock:
            was, self._lost_at = self._lost_at, self._lost_at or time.monotonic()
        if was is None:
            log.error("kafka broker unreachable")

    def back(self) -> None:
        if self._lost_at is None:
            return
        with self._lock:
            was, self._lost_at = self._lost_at, None
        if was is not None:
            log.warning("kafka broker reached again", extra={"seconds": round(time.monotonic() - was, 1)})
