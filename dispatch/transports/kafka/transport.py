"""Kafka as a transport: envelopes in the topic `agent_turns`, and the row of each unfinished item in the store's queue.

The rows say what may be claimed and are what the admission bound counts; the broker carries the news of them.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from dispatch.envelope import AgentTurnEnvelope
from dispatch.errors import QueueUnavailable, TaskQueueUnavailable
from dispatch.ports import Delivery, Gates, QueueRow, RowStore, Serves
from dispatch.transports.kafka import metrics
from dispatch.transports.kafka.access import refused_access
from dispatch.transports.kafka.admin import KafkaAdmin, Lag
from dispatch.transports.kafka.client import BrokerWatch, KafkaSettings
from dispatch.transports.kafka.inbox import KafkaInbox
from dispatch.transports.kafka.member import GroupMember
from dispatch.transports.kafka.producer import EnvelopeProducer


class KafkaListener:
    """The ear of a worker process. With the first one to wait the process joins the group, with the last it leaves."""

    def __init__(self, transport: KafkaTransport) -> None:
        self._transport = transport
        self._seen = transport.inbox.news
        self._open = False

    def wait(self, timeout_s: float) -> bool:
        if not self._open:
            self._open = True
            self._transport.join_group()
        woken = self._transport.inbox.wait(self._seen, timeout_s)
        self._seen = self._transport.inbox.news
        return woken

    def close(self) -> None:
        if self._open:
            self._open = False
            self._transport.leave_group()


class KafkaTransport:
    """Rows by another transport, envelopes by the broker."""

    name = "kafka"
    backend_name = "KafkaQueueBackend"

    def __init__(self, settings: KafkaSettings, rows: RowStore) -> None:
        self._rows = rows
        self.capabilities = rows.capabilities
        self.inbox = KafkaInbox()
        self._settings = settings
        self._watch = BrokerWatch()
        self._admin = KafkaAdmin(settings, self._watch)
        self._lag = Lag(self._admin)
        self._producer = EnvelopeProducer(settings, self._watch, ensure_topic=self._admin.ensure_topic)
        self._lock = threading.Lock()
        self._member: tuple[GroupMember, int] | None = None
        self._listeners = 0
        self._opened_by = 0

    @property
    def envelopes(self) -> KafkaTransport:
        return self

    # -- rows ----------------------------------------------------------------------------------------------------------
    def transaction(self) -> AbstractContextManager[None]:
        return self._rows.transaction()

    def publish(self, rows: Sequence[QueueRow], *, bound: int | None = None) -> None:
        self._rows.publish(rows, bound=bound)

    def promote(self, moves: Sequence[tuple[int, int, float | None, float | None]]) -> None:
        self._rows.promote(moves)

    def receive(self, *, want: int, serves: Serves, gates: Gates, cursor: str, now: float) -> list[Delivery]:
        return self._rows.receive(want=want, serves=serves, gates=gates, cursor=cursor, now=now)

    def ack(self, item_ids: Sequence[int]) -> None:
        self._rows.ack(item_ids)

    def release(self, item_ids: Sequence[int], *, delay_s: float = 0.0) -> None:
        self._rows.release(item_ids, delay_s=delay_s)

    def take(self, item_ids: Sequence[int]) -> list[int]:
        return self._rows.take(item_ids)

    def published(self, item_ids: Sequence[int], *, at: float) -> None:
        self._rows.published(item_ids, at=at)

    def unpublished(self, *, before: float, limit: int) -> list[QueueRow]:
        return self._rows.unpublished(before=before, limit=limit)

    def extend(self, item_ids: Sequence[int]) -> None:
        self._rows.extend(item_ids)

    def rows(self, item_ids: Sequence[int]) -> dict[int, QueueRow]:
        return self._rows.rows(item_ids)

    def due(self, *, now: float, limit: int) -> list[int]:
        return self._rows.due(now=now, limit=limit)

    def expired(self, *, now: float, limit: int) -> list[int]:
        return self._rows.expired(now=now, limit=limit)

    def page(self, *, after: int, limit: int) -> list[QueueRow]:
        return self._rows.page(after=after, limit=limit)

    # -- depth ---------------------------------------------------------------------------------------------------------
    def depth(self) -> int:
        """The group's lag: deliveries that are not acked, those of running turns among them."""
        if self._rows.rebuilding:
            raise QueueUnavailable("the queue's rows are being rebuilt from the state store")
        return self._read_lag()

    def _read_lag(self) -> int:
        """The topic is made with the first look of a process: a fleet need not begin with a worker."""
        if self._opened_by != os.getpid():
            try:
                self._open()
            except TaskQueueUnavailable as error:
                raise QueueUnavailable(error.message) from error
        return self._lag.read()

    def room(self, bound: int) -> int:
        """The bound counts rows, exactly."""
        return self._rows.room(bound)

    def make_room(self, count: int, bound: int) -> None:
        self._rows.make_room(count, bound)

    @property
    def rebuilding(self) -> bool:
        return self._rows.rebuilding

    def rebuilt(self) -> None:
        self._rows.rebuilt()

    # -- envelopes -----------------------------------------------------------------------------------------------------
    def open(self) -> None:
        try:
            self._open()
        except TaskQueueUnavailable as error:
            raise refused_access(self._settings) or error from None

    def _open(self) -> None:
        self._admin.ensure_topic()
        self._opened_by = os.getpid()

    def refuse_when_blind(self) -> None:
        self._read_lag()

    def send(self, envelopes: Sequence[AgentTurnEnvelope], *, again: bool = False) -> frozenset[str]:
        failed = self._producer.send(envelopes)
        if again:
            metrics.REPUBLISHED.inc(len(envelopes) - len(failed))
        return failed

    def post(self, envelopes: Sequence[AgentTurnEnvelope], confirmed: Callable[[str], None]) -> None:
        self._producer.post(envelopes, confirmed)

    def parked(self, count: int) -> None:
        if count:
            metrics.PARKED.inc(count)

    # -- the group -----------------------------------------------------------------------------------------------------
    def join_group(self) -> None:
        with self._lock:
            self._listeners += 1
            if self._member is None or self._member[1] != os.getpid():
                member = GroupMember(self._settings, self.inbox, self._watch)
                self._member = member, os.getpid()
                member.start()

    def leave_group(self) -> None:
        with self._lock:
            self._listeners -= 1
            if self._listeners > 0 or self._member is None:
                return
            (member, pid), self._member = self._member, None
        if pid == os.getpid():
            member.stop()

    # -- waking --------------------------------------------------------------------------------------------------------
    def wait(self, timeout_s: float) -> bool:
        return self.inbox.wait(self.inbox.news, timeout_s)

    def wake(self) -> None:
        """The loops of this process; those of others are woken by envelopes."""
        self.inbox.wake()

    def listener(self) -> KafkaListener:
        return KafkaListener(self)

    def close(self) -> None:
        """Leave the group, and wait a bounded time for the broker's word on what was posted."""
        with self._lock:
            self._listeners, stopped, self._member = 0, self._member, None
        if stopped is not None and stopped[1] == os.getpid():
            stopped[0].stop()
        self._producer.close()
        self._admin.close()
        self._rows.close()
