"""Transports to test, and shorthands to act on them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from django.db import connection

from dispatch import wiring
from dispatch.ports import Gates, QueueRow, RowStore, Serves, Transport
from dispatch.states import QueueState
from dispatch.transports.kafka import KafkaSettings, KafkaTransport
from dispatch.transports.memory import MemoryTransport
from dispatch.transports.postgres import PostgresTransport
from dispatch.transports.sqlite import SQLiteTransport
from tests.support.brokers import servers

NOW = 1_800_000_000.0
OPEN = Gates()
KIND = "orchestrator_task"
MANY = 1_000_000
SERVES = Serves(agents=("echo",), kinds=(KIND,))


def memory(place: Path) -> Transport:
    """A queue in this process."""
    return MemoryTransport(rebuilding=False)


def stored(place: Path) -> Transport:
    """The durable queue that goes with the store of this test run."""
    if connection.vendor == "postgresql":
        return PostgresTransport(wiring.direct_uri())
    transport = SQLiteTransport(place / "queue.db")
    transport.rebuilt()
    return transport


def kafka(place: Path) -> Transport:
    """The durable queue with envelopes on the broker of this test run."""
    rows = stored(place)
    transport = KafkaTransport(KafkaSettings(servers=(servers(),), session_timeout_s=2.0), cast(RowStore, rows))
    transport.open()
    return transport


def counted(queue: Transport) -> int:
    """What the bound counts: unfinished rows, suspended ones apart."""
    return MANY - queue.room(MANY)


def row(item_id: int, *, tenant: str = "t1", state: int = QueueState.CLAIMABLE, **more: Any) -> QueueRow:
    values: dict[str, Any] = {
        "job_id": f"orch-{item_id:032x}",
        "kind": KIND,
        "agent_name": "echo",
        "rank": NOW + item_id,
        "priority": 2,
        "enqueued_at": NOW,
    }
    return QueueRow(item_id=item_id, tenant=tenant, state=state, **{**values, **more})


def publish(queue: Transport, *rows: QueueRow, bound: int | None = None) -> None:
    with queue.transaction():
        queue.publish(rows, bound=bound)


def receive(
    queue: Transport, want: int = 1, *, serves: Serves = SERVES, gates: Gates = OPEN, cursor: str = "", now: float = NOW
) -> list[int]:
    with queue.transaction():
        return [d.item_id for d in queue.receive(want=want, serves=serves, gates=gates, cursor=cursor, now=now)]


class Undone(Exception):
    """A transaction is to roll back."""


@contextlib.contextmanager
def undone(queue: Transport) -> Iterator[None]:
    with contextlib.suppress(Undone), queue.transaction():
        yield
        raise Undone


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Run calls in threads that begin together; their answers, errors among them, in no order."""
    start, answers = threading.Barrier(len(calls)), []

    def run(call: Callable[[], Any]) -> None:
        start.wait(20)
        try:
            answers.append(call())
        except Exception as error:
            answers.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers
