"""The topic and the group as an administrator sees them: partitions ensured, lag read."""

from __future__ import annotations

import logging
import os
import threading
import time

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from dispatch.errors import QueueUnavailable, TaskQueueUnavailable
from dispatch.transports.kafka.client import GROUP, TOPIC, BrokerWatch, ClientHolder, KafkaSettings, refused_option

REACH_S = 5.0  # what a start waits for the broker
LAG_S = 3.0
FRESH_S = 1.0  # a lag is believed for so long
UNREAD_S = 0.5  # and a failure to read it

AGAIN_S = 0.05
_ELECTING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
LATEST, EARLIEST = OffsetSpec.latest(), OffsetSpec.earliest()  # type: ignore[no-untyped-call]

log = logging.getLogger("dispatch.kafka")


class KafkaAdmin(ClientHolder):
    """One client for each process, made when it is first needed: none survives a fork."""

    def __init__(self, settings: KafkaSettings, watch: BrokerWatch) -> None:
        super().__init__()
        self._settings = settings
        self._watch = watch
        self._lock = threading.Lock()
        self._made: AdminClient | None = None
        self._reader: Consumer | None = None
        self._pid = 0

    def held(self) -> list[object]:
        return [self._made, self._reader]

    def client(self) -> AdminClient:
        return self._clients()[0]

    def _clients(self) -> tuple[AdminClient, Consumer]:
        with self._lock:
            if self._made is None or self._reader is None or self._pid != os.getpid():
                options = self._settings.silent()
                try:
                    self._made = AdminClient(options)
                    self._reader = Consumer({**options, "group.id": GROUP, "enable.auto.commit": False})
                except KafkaException as error:
                    raise refused_option(error) from None
                self._pid = os.getpid()
            return self._made, self._reader

    def close(self) -> None:
        """Let the clients go; the next call makes new ones."""
        with self._lock:
            if self._pid != os.getpid():
                return
            reader, self._made, self._reader = self._reader, None, None
        if reader is not None:
            reader.close()

    # -- the topic -----------------------------------------------------------------------------------------------------
    def ensure_topic(self) -> None:
        """Make the topic, or add partitions to it; never take any away. Raises TaskQueueUnavailable."""
        servers = ",".join(self._settings.servers)
        client, wanted = self.client(), self._settings.partitions
        asked = time.monotonic()
        try:
            there = len(self._partitions(client, REACH_S))
            if there == 0:
                self._create(client, wanted)
                there = self._await(client)
            if there < wanted:
                self._grow(client, wanted)
            elif there > wanted:
                log.warning(
                    "kafka topic has more partitions than AGENT_TURNS_PARTITIONS; they are left",
                    extra={"topic": TOPIC, "partitions": there, "configured": wanted},
                )
        except KafkaException as error:
            code = error.args[0]
            if code.code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN):
                self._watch.lost(asked=asked)
                raise TaskQueueUnavailable(f"KAFKA_BOOTSTRAP_SERVERS: no broker answered at {servers}") from None
            raise TaskQueueUnavailable(
                f"KAFKA_BOOTSTRAP_SERVERS: topic {TOPIC} at {servers} cannot be made ready ({code.name()})"
            ) from None
        except TimeoutError:
            raise TaskQueueUnavailable(
                f"KAFKA_BOOTSTRAP_SERVERS: topic {TOPIC} at {servers} was not made ready in {REACH_S:g} s"
            ) from None
        self._watch.back(asked=asked)

    def _await(self, client: AdminClient) -> int:
        """The topic's partitions: a broker answers for what it has made before it knows of it itself."""
        end = time.monotonic() + REACH_S
        while not (there := len(self._partitions(client, REACH_S))):
            if time.monotonic() > end:
                raise TimeoutError
            time.sleep(AGAIN_S)
        return there

    @staticmethod
    def _create(client: AdminClient, partitions: int) -> None:
        """With the broker's own default of replicas. Another process may be making it now, of another size."""
        try:
            topic = NewTopic(TOPIC, num_partitions=partitions, replication_factor=-1)
            client.create_topics([topic], request_timeout=REACH_S)[TOPIC].result(REACH_S)
            log.info("kafka topic made", extra={"topic": TOPIC, "partitions": partitions})
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _grow(self, client: AdminClient, wanted: int) -> None:
        """Add partitions. Another process may be adding some as well: as many, fewer or more."""
        end = time.monotonic() + REACH_S
        while True:
            try:
                client.create_partitions([NewPartitions(TOPIC, wanted)], request_timeout=REACH_S)[TOPIC].result(REACH_S)
                log.info("kafka topic grown", extra={"topic": TOPIC, "partitions": wanted})
                return
            except KafkaException as error:
                if error.args[0].code() != KafkaError.INVALID_PARTITIONS or time.monotonic() > end:
                    raise
            if len(self._partitions(client, REACH_S)) >= wanted:
                return
            time.sleep(AGAIN_S)

    @staticmethod
    def _partitions(client: AdminClient, timeout_s: float) -> list[int]:
        found = client.list_topics(TOPIC, timeout=timeout_s).topics[TOPIC]
        if found.error is None:
            return sorted(found.partitions)
        if found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return []
        raise KafkaException(found.error)

    # -- the lag -------------------------------------------------------------------------------------------------------
    def lag(self) -> int:
        """Messages that the group has not acked, those of running turns among them. Raises QueueUnavailable."""
        asked = time.monotonic()
        try:
            lag = self._settled_lag(asked + LAG_S)
        except KafkaException as error:
            if error.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
                self._watch.lost(asked=asked)
            raise QueueUnavailable(f"the lag of group {GROUP} cannot be read ({error.args[0].name()})") from None
        except (TimeoutError, TaskQueueUnavailable, RuntimeError) as error:  # the last: closed meanwhile
            raise QueueUnavailable(f"the lag of group {GROUP} cannot be read ({type(error).__name__})") from None
        self._watch.back(asked=asked)
        return lag

    def _settled_lag(self, end: float) -> int:
        """Read it, again while leaders and coordinators are only being elected."""
        while True:
            try:
                return self._read_lag(*self._clients())
            except KafkaException as error:
                if error.args[0].code() not in _ELECTING or time.monotonic() > end:
                    raise
                time.sleep(AGAIN_S)

    def _read_lag(self, client: AdminClient, reader: Consumer) -> int:
        """What is committed is asked of a consumer that joins nothing: the administrator's call for it, in librdkafka
        2.16, ends the process when the group's coordinator is loading or has moved."""
        partitions = [TopicPartition(TOPIC, p) for p in self._partitions(client, LAG_S)]
        if not partitions:
            raise QueueUnavailable(f"there is no topic {TOPIC}")
        latest = client.list_offsets(dict.fromkeys(partitions, LATEST), request_timeout=LAG_S)
        acked = {tp.partition: tp.offset for tp in reader.committed(partitions, timeout=LAG_S)}
        unread = [tp for tp in partitions if acked.get(tp.partition, -1) < 0]
        if unread:  # nothing committed: all that is still in the log
            earliest = client.list_offsets(dict.fromkeys(unread, EARLIEST), request_timeout=LAG_S)
            acked |= {tp.partition: future.result(LAG_S).offset for tp, future in earliest.items()}
        ends = {tp.partition: future.result(LAG_S).offset for tp, future in latest.items()}
        return sum(max(0, ends[p] - acked[p]) for p in ends)


class Lag:
    """The lag as the processes ask for it: read once for all who ask in the same second."""

    def __init__(self, admin: KafkaAdmin) -> None:
        self._admin = admin
        self._lock = threading.Lock()
        self._value = 0
        self._error: QueueUnavailable | None = None
        self._until = 0.0

    def read(self) -> int:
        """Raises QueueUnavailable."""
        with self._lock:
            if time.monotonic() >= self._until:
                try:
                    self._value, self._error = self._admin.lag(), None
                except QueueUnavailable as error:
                    self._error = error
                self._until = time.monotonic() + (UNREAD_S if self._error else FRESH_S)
            if self._error is not None:
                raise QueueUnavailable(self._error.message)
            return self._value
