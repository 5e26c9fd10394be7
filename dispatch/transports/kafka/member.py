"""The one thread of a process that speaks as a member of the consumer group.

Every call of the consumer is made here: a call from another thread would wait behind the polling one without limit.
Polling never stops, however long turns run. What is finished comes by the inbox and is committed up to the first
delivery that is not, asynchronously, so that a broker that is away blocks nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from dispatch.envelope import AgentTurnEnvelope, BadEnvelope
from dispatch.ports import Message
from dispatch.transports.kafka import metrics
from dispatch.transports.kafka.client import GROUP, TOPIC, BrokerWatch, KafkaSettings
from dispatch.transports.kafka.inbox import KafkaInbox
from dispatch.transports.kafka.marks import Marks

POLL_S = 0.05
BATCH = 256
COMMIT_EVERY_S = 0.1
COMMIT_AGAIN_S = 0.5
COMMIT_LOST_S = 30.0  # the client's word on a commit has not come: it is sent once more
LEAVE_S = 2.0
REJOIN_S = 2.0
TAKEN_OVER = KafkaError(KafkaError.FENCED_INSTANCE_ID).name()
FETCHED_S = 1.0  # what was fetched is handed on sooner than that

log = logging.getLogger("dispatch.kafka")


class GroupMember:
    """Runs from `start` to `stop`; the inbox says that it is listening meanwhile."""

    def __init__(self, settings: KafkaSettings, inbox: KafkaInbox, watch: BrokerWatch) -> None:
        self._settings = settings
        self._inbox = inbox
        self._watch = watch
        self._marks = Marks()
        self._paused: set[int] = set()
        self._in_flight: dict[int, int] | None = None  # {partition: assignment} of the commit that is under way
        self._commit_at = 0.0
        self._sent_at = 0.0
        self._said = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kafka-member", daemon=True)

    def start(self) -> None:
        self._inbox.listening = True
        self._thread.start()

    def stop(self, timeout_s: float = 2 * LEAVE_S) -> None:
        """Leave the group; what is in hand and was not acked goes to the other members."""
        self._stopping.set()
        self._thread.join(timeout_s)

    # -- the thread ----------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._be_member(Consumer(self._options()))
            except KafkaException as error:
                self._listen(False)  # until it is a member again the claim loops take rows
                if self._ended(error.args[0]) == TAKEN_OVER:
                    break  # another process has our KAFKA_GROUP_INSTANCE_ID: to come back would throw it out in turn
                self._stopping.wait(REJOIN_S)
                self._listen(True)
        self._listen(False)

    def _listen(self, yes: bool) -> None:
        self._inbox.listening = yes
        self._inbox.wake()

    def _ended(self, error: KafkaError) -> str:
        """Say once why, until the group gives us partitions again; answers the error's name."""
        why = _cause(error)
        if why != self._said:
            log.error("kafka membership ended", extra={"error": why, "for_good": why == TAKEN_OVER})
            self._said = why
        return why

    def _be_member(self, consumer: Consumer) -> None:
        try:
            consumer.subscribe([TOPIC], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
            while not self._stopping.is_set():
                self._receive(consumer)
                self._note_acks()
                self._commit(consumer)
                self._balance(consumer)
        finally:
            self._leave(consumer)

    def _receive(self, consumer: Consumer) -> None:
        batch: list[Message] = []
        message = consumer.poll(POLL_S)
        while message is not None:
            error = message.error()
            if error is None:
                batch += self._delivery(message)
            elif _is_fatal(error):
                self._give_up(set(self._marks.owned))  # nothing more is ours to commit
                raise KafkaException(error)
            elif error.code() != KafkaError._ALL_BROKERS_DOWN:
                log.warning("kafka delivery failed", extra={"error": error.name()})
            message = consumer.poll(0) if len(batch) < BATCH else None
        if batch:
            self._watch.back(asked=time.monotonic() - FETCHED_S)
            self._inbox.add(batch)

    def _delivery(self, message: KafkaMessage) -> list[Message]:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        assignment = self._marks.received(partition, offset)
        if assignment is None:
            return []  # it came while its partition was being taken away
        raw = _bytes(message.value())
        try:
            envelope = AgentTurnEnvelope.decode(raw)
        except BadEnvelope:
            envelope = None
        return [Message(envelope=envelope, raw=raw, partition=partition, offset=offset, assignment=assignment)]

    def _note_acks(self) -> None:
        for message in self._inbox.drain_acked():
            self._marks.ack(message.partition, message.assignment, message.offset)

    def _balance(self, consumer: Consumer) -> None:
        """Fetch no more than can be held in hand."""
        if self._inbox.is_full and (more := [p for p in self._marks.owned if p not in self._paused]):
            consumer.pause(_places(more))
            self._paused.update(more)
        elif self._paused and self._inbox.has_room:
            consumer.resume(_places([p for p in self._paused if p in self._marks.owned]))
            self._paused.clear()

    # -- commits -------------------------------------------------------------------------------------------------------
    def _commit(self, consumer: Consumer) -> None:
        now = time.monotonic()
        if now < self._commit_at:
            return
        due = self._marks.due()
        if due:
            self._send_commit(consumer, due)

    def _send_commit(self, consumer: Consumer, offsets: dict[int, int]) -> None:
        self._in_flight = self._marks.assignments(offsets)
        self._sent_at = time.monotonic()
        self._commit_at = self._sent_at + COMMIT_LOST_S
        try:
            places = [TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()]
            consumer.commit(offsets=places, asynchronous=True)
        except KafkaException as error:
            self._refused(error.args[0])

    def _committed(self, error: KafkaError | None, places: Sequence[TopicPartition]) -> None:
        """The client's word on a commit. During a rebalance it may be refused: then it is sent again."""
        known, self._in_flight = self._in_flight or {}, None
        if error is not None:
            self._refused(error)
            return
        self._watch.back(asked=self._sent_at)
        self._commit_at = time.monotonic() + COMMIT_EVERY_S
        for place in places:
            if place.error is None and place.partition in known:
                self._marks.committed(place.partition, known[place.partition], place.offset)

    def _refused(self, error: KafkaError) -> None:
        self._in_flight = None
        self._commit_at = time.monotonic() + COMMIT_AGAIN_S
        if not self._watch.is_lost:
            log.info("kafka commit put off", extra={"error": error.name()})

    # -- the group's word, given in poll -------------------------------------------------------------------------------
    def _assigned(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        if not places:
            return
        consumer.incremental_assign(places)
        consumer.resume(places)  # the client keeps a partition's pause while it is somebody else's
        self._marks.assign(place.partition for place in places)
        self._watch.back(asked=time.monotonic())
        self._said = ""
        self._changed("assigned", places)

    def _revoked(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Last chance to commit what is finished; what runs goes on, and its delivery is the next owner's to ack."""
        self._note_acks()
        gone = {place.partition for place in places}
        due = {partition: offset for partition, offset in self._marks.due().items() if partition in gone}
        if due:
            self._send_commit(consumer, due)
        self._give_up(gone)
        self._changed("revoked", places)

    def _lost(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """The group went on without us: a commit would be refused, or be another member's."""
        self._give_up({place.partition for place in places})
        self._changed("lost", places)

    def _give_up(self, partitions: set[int]) -> None:
        self._marks.revoke(partitions)
        self._paused -= partitions
        self._inbox.forget(partitions)
        self._commit_at = min(self._commit_at, time.monotonic() + COMMIT_EVERY_S)

    @staticmethod
    def _changed(what: str, places: list[TopicPartition]) -> None:
        metrics.REBALANCES.labels(change=what).inc()
        numbers = ",".join(str(place.partition) for place in places)
        log.info("kafka partitions %s", what, extra={"partitions": numbers})

    # -- the end -------------------------------------------------------------------------------------------------------
    def _leave(self, consumer: Consumer) -> None:
        """Commit what is finished, in a bounded time, and leave the group."""
        end = time.monotonic() + LEAVE_S
        self._note_acks()
        self._commit_at = 0.0
        while self._marks.due() and time.monotonic() < end and not self._watch.is_lost:
            self._commit(consumer)
            try:
                late = consumer.poll(POLL_S)
            except (KafkaException, RuntimeError):
                break
            if late is not None and (error := late.error()) is not None and _is_fatal(error):
                break
        self._give_up(set(self._marks.owned))
        consumer.close()

    def _options(self) -> dict[str, Any]:
        settings = self._settings
        options: dict[str, Any] = {
            **settings.polled(self._watch),
            "allow.auto.create.topics": False,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "max.poll.interval.ms": int(settings.max_poll_interval_s * 1000),
            "on_commit": self._committed,
            # what is fetched ahead is thrown away by a pause
            "queued.min.messages": BATCH,
            "queued.max.messages.kbytes": 1024,
            **settings.tuning,
        }
        if settings.group_instance_id:
            options["group.instance.id"] = settings.group_instance_id
        if settings.group_protocol == "consumer":  # the broker sets the time-outs and the assignor
            return options | {"group.protocol": "consumer"}
        timeout_ms = int(settings.session_timeout_s * 1000)
        return options | {
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": timeout_ms,
            "heartbeat.interval.ms": max(100, min(3000, timeout_ms // 10)),
        }


def _is_fatal(error: KafkaError) -> bool:
    """The client gives the fatal errors of a consumer a code of their own, and not the mark."""
    return error.fatal() or error.code() == KafkaError._FATAL


def _cause(error: KafkaError) -> str:
    """Its name; of a fatal one, whose cause the client tells in words alone, the name of the cause."""
    for known in map(KafkaError, (KafkaError.FENCED_INSTANCE_ID, KafkaError.UNRELEASED_INSTANCE_ID)):
        if known.str() in error.str():
            return known.name()
    return error.name()


def _places(partitions: Sequence[int]) -> list[TopicPartition]:
    return [TopicPartition(TOPIC, partition) for partition in partitions]


def _bytes(value: str | bytes | None) -> bytes:
    return value.encode() if isinstance(value, str) else value or b""
