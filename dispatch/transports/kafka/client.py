"""What every client of the broker is made with: settings, security options, a log, and whether the broker is there."""

from __future__ import annotations

import ctypes
import logging
import math
import os
import re
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakSet

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


class ClientHolder(ABC):
    """Whoever keeps clients of librdkafka. A forked child has none of their threads, and crashes when it takes one
    down: there each gets a reference that nobody gives back.
    """

    _all: ClassVar[WeakSet[ClientHolder]] = WeakSet()

    def __init__(self) -> None:
        self._all.add(self)

    @abstractmethod
    def held(self) -> Iterable[object]: ...

    @classmethod
    def leave_to_parent(cls) -> None:
        for client in [client for holder in cls._all for client in holder.held()]:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))


os.register_at_fork(after_in_child=ClientHolder.leave_to_parent)


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
    """Whether the broker answers; each change is said once.

    Several clients tell of it, some of them late. Of two that differ the one that asked later is right: what was
    fetched before the broker went does not bring it back, and what ran out of time meanwhile does not take it away.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lost_at: float | None = None
        self._answered = -math.inf  # when that was asked which was answered last

    @property
    def is_lost(self) -> bool:
        return self._lost_at is not None

    def error(self, error: KafkaError) -> None:
        """The clients' error callback."""
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.lost(asked=time.monotonic())
        elif error.code() not in (KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT):
            log.warning("kafka client error", extra={"error": error.name()})

    def lost(self, *, asked: float) -> None:
        """What was asked for at this time, by the monotonic clock, got no answer."""
        with self._lock:
            if self._lost_at is not None or asked <= self._answered:
                return
            self._lost_at = time.monotonic()
        log.error("kafka broker unreachable")

    def back(self, *, asked: float) -> None:
        """What was asked for at this time, by the monotonic clock, was answered."""
        with self._lock:
            if self._lost_at is not None and asked <= self._lost_at:
                return
            self._answered = max(self._answered, asked)
            was, self._lost_at = self._lost_at, None
        if was is not None:
            log.warning("kafka broker reached again", extra={"seconds": round(time.monotonic() - was, 1)})
