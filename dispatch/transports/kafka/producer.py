"""Envelopes go out: idempotent, acknowledged by all replicas, one flush for all who publish at the same time."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from dispatch.envelope import AgentTurnEnvelope, partition_key_for
from dispatch.errors import TaskQueueUnavailable
from dispatch.transports.kafka.client import TOPIC, BrokerWatch, ClientHolder, KafkaSettings, refused_option

FLUSH_S = 0.1
IDLE_S = 1.0
FULL_PAUSE_S = 0.01
GRACE_S = 0.5  # after the client's own time-out its report must have come
CLOSE_S = 2.0  # what an end waits for the broker's word on what was posted

log = logging.getLogger("dispatch.kafka")
_Report = Callable[[str, KafkaError | None], None]


class _Batch:
    """The reports that one caller waits for."""

    def __init__(self, jobs: Sequence[str]) -> None:
        self.failed: set[str] = set(jobs)  # until it is confirmed
        self._waiting = len(jobs)
        self._lock = threading.Lock()
        self._done = threading.Event()

    def report(self, job_id: str, error: KafkaError | None) -> None:
        with self._lock:
            if error is None:
                self.failed.discard(job_id)
            self._waiting -= 1
            if self._waiting <= 0:
                self._done.set()

    def wait(self, seconds: float) -> frozenset[str]:
        """The jobs that were not confirmed in time."""
        self._done.wait(seconds)
        with self._lock:
            return frozenset(self.failed)


class _Live(ClientHolder):
    """A producer with the one thread that flushes it and serves its reports."""

    def __init__(self, producer: Producer) -> None:
        super().__init__()
        self.producer = producer
        self.pid = os.getpid()
        self.broken = False
        self._work = threading.Event()
        threading.Thread(target=self._flush, name="kafka-flush", daemon=True).start()

    def held(self) -> list[object]:
        return [self.producer]

    def nudge(self) -> None:
        self._work.set()

    def _flush(self) -> None:
        while not self.broken:
            self._work.wait(IDLE_S)
            self._work.clear()
            self.producer.poll(0)  # log lines and errors of an idle client are served as well
            while len(self.producer) and not self.broken:
                self.producer.flush(FLUSH_S)

    def close(self, seconds: float) -> int:
        """Wait so long for the reports that are due, then end; answers how many messages were left."""
        left = self.producer.flush(seconds)
        self.broken = True
        self.nudge()
        if left:
            self.producer.purge()
            self.producer.poll(0)  # who waits for these has their reports
        return left


class EnvelopeProducer:
    """Made in the process that uses it, when it first does: a producer does not survive a fork."""

    def __init__(self, settings: KafkaSettings, watch: BrokerWatch, *, ensure_topic: Callable[[], None]) -> None:
        self._settings = settings
        self._watch = watch
        self._ensure_topic = ensure_topic
        self._lock = threading.Lock()
        self._live: _Live | None = None
        self._topic_is_there = False

    def send(self, envelopes: Sequence[AgentTurnEnvelope]) -> frozenset[str]:
        """Answers the job ids that no broker confirmed within the time for it; those may have arrived all the same."""
        jobs = [envelope.job_id for envelope in envelopes]
        if not jobs:
            return frozenset()
        if self._watch.is_lost and not self._reach():
            return frozenset(jobs)  # at once: who publishes must not queue up behind a broker that is away
        try:
            live = self._ready()
        except TaskQueueUnavailable as error:
            log.warning("kafka producer not ready", extra={"reason": error.message})
            return frozenset(jobs)
        end = time.monotonic() + self._settings.publish_timeout_s + GRACE_S
        batch = _Batch(jobs)
        for envelope in envelopes:
            self._produce(live, envelope, batch.report, end)
        live.nudge()
        return batch.wait(end - time.monotonic())

    def post(self, envelopes: Sequence[AgentTurnEnvelope], confirmed: Callable[[str], None]) -> None:
        """Send without waiting. What cannot be sent now is left out: its row says that it was not."""
        if not envelopes or self._watch.is_lost:
            return
        try:
            live = self._ready()
        except TaskQueueUnavailable as error:
            log.warning("kafka producer not ready", extra={"reason": error.message})
            return

        def report(job_id: str, error: KafkaError | None) -> None:
            if error is None:
                confirmed(job_id)

        for envelope in envelopes:
            self._produce(live, envelope, report, end=0.0)
        live.nudge()

    def close(self) -> None:
        """Wait for the broker's word on what was posted, while there is a broker. The next call makes a new client."""
        with self._lock:
            if self._live is None or self._live.pid != os.getpid():
                return
            live, self._live = self._live, None
        left = live.close(0.0 if self._watch.is_lost else CLOSE_S)
        if left:
            log.warning("envelopes not confirmed at the end", extra={"count": left})

    def _reach(self) -> bool:
        """Whether the broker is there again."""
        try:
            self._ensure_topic()
        except TaskQueueUnavailable:
            return False
        return True

    def _produce(self, live: _Live, envelope: AgentTurnEnvelope, report: _Report, end: float) -> None:
        """Give it to the client; when its queue is full, until `end`."""

        asked = time.monotonic()

        def told(error: KafkaError | None, message: Message) -> None:
            self._told(live, error, asked)
            report(envelope.job_id, error)

        key, value = partition_key_for(envelope).encode(), envelope.encode()
        while True:
            try:
                live.producer.produce(TOPIC, key=key, value=value, on_delivery=told)
                return
            except BufferError:  # the client's own queue is full
                live.nudge()
                if time.monotonic() > end:
                    report(envelope.job_id, KafkaError(KafkaError._QUEUE_FULL))
                    return
                time.sleep(FULL_PAUSE_S)
            except KafkaException as error:
                self._told(live, error.args[0], asked)
                report(envelope.job_id, error.args[0])
                return

    def _told(self, live: _Live, error: KafkaError | None, asked: float) -> None:
        if error is None:
            self._watch.back(asked=asked)
            return
        if error.code() == KafkaError._MSG_TIMED_OUT:
            self._watch.lost(asked=asked)
        else:
            log.warning("envelope refused", extra={"error": error.name()})
        if error.fatal():
            live.broken = True  # an idempotent producer that lost its place: the next call makes another
        if error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            self._topic_is_there = False

    def _ready(self) -> _Live:
        with self._lock:
            if not self._topic_is_there:
                self._ensure_topic()
                self._topic_is_there = True
            if self._live is None or self._live.broken or self._live.pid != os.getpid():
                try:
                    self._live = _Live(Producer(self._options()))
                except KafkaException as error:
                    raise refused_option(error) from None
            return self._live

    def _options(self) -> dict[str, object]:
        return self._settings.polled(self._watch) | {
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 1,
            "delivery.timeout.ms": int(self._settings.publish_timeout_s * 1000),
        }
