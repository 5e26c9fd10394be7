"""One authority transaction: the queue's, then the state store's, in the order that every process keeps.

With a queue in the state store both are one. With a queue of its own the state commits first, then the queue; what a
crash between them leaves (a row too many, one too few, an unpromoted head) the repair tick rebuilds from the state.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from django.db import DatabaseError, OperationalError, connection, transaction

from dispatch.errors import QueueUnavailable
from dispatch.ports import Transport
from sessions_app.models import Session

T = TypeVar("T")
DEADLOCK_TRIES = 5
FROZEN_S = 1.5  # between two statements of one transaction there is no agent and no network but the store's

log = logging.getLogger("dispatch.authority")


def lock_sessions(session_pks: Iterable[int]) -> dict[int, Session]:
    """Lock the sessions in the one order that everybody keeps, in a statement of its own.

    The statements that follow need a snapshot taken after these locks are held.
    """
    rows = (
        Session.objects.select_for_update(no_key=True).filter(pk__in=set(session_pks)).order_by("tenant", "session_id")
    )
    return {row.pk: row for row in rows}


def let_go_when_frozen() -> None:
    """At the start of a transaction: should its client stop in the middle of it, the server ends it after a while.

    A frozen process would hold its locks until it goes on, and with them the turns that others want to rescue.
    """
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = {FROZEN_S * 1000:.0f}")


def retry_deadlock(work: Callable[[], T]) -> T:
    """Run `work` again when Postgres broke a deadlock with it. Not inside a caller's transaction: it is broken too."""
    for attempt in range(DEADLOCK_TRIES):
        try:
            return work()
        except OperationalError as error:
            broken = getattr(error.__cause__, "sqlstate", None) == "40P01"
            if not broken or connection.in_atomic_block or attempt + 1 == DEADLOCK_TRIES:
                raise
    raise AssertionError("unreachable")


class Unit(threading.local):
    """What one transaction has touched: items whose queue rows follow the state, parents that ended, heads freed."""

    def __init__(self) -> None:
        self.depth = 0
        self.deferred = False
        self.touched: set[int] = set()
        self.ended: set[int] = set()
        self.freed: set[int] = set()  # became claimable: workers are woken for them after the commit
        self.wake = False


class Store:
    """Opens authority transactions and remembers what must follow them."""

    def __init__(
        self,
        transport: Transport,
        *,
        project: Callable[[set[int]], set[int]],
        rebuild: Callable[[], None],
        follow_up: Callable[[set[int]], None],
        announce: Callable[[set[int]], None],
        guard: Callable[[], None],
    ) -> None:
        self.transport = transport
        self._project = project
        self._rebuild = rebuild
        self._follow_up = follow_up
        self._announce = announce
        self._guard = guard
        self._unit = Unit()

    @contextmanager
    def transaction(self) -> Iterator[Unit]:
        """Inside: queue lock (where it has one), then the state's transaction. After it: wake-ups, dependents.

        In a caller's own `atomic()` with a queue that cannot join it, the queue is not touched before that commits.
        """
        unit = self._unit
        if unit.depth:
            unit.depth += 1
            try:
                yield unit
            finally:
                unit.depth -= 1
            return
        self._guard()
        unit.touched, unit.ended, unit.freed, unit.wake = set(), set(), set(), False
        unit.deferred = connection.in_atomic_block and not self.transport.capabilities.joins_state_transaction
        unit.depth, committed, own = 1, False, not connection.in_atomic_block
        try:
            if unit.deferred:
                with transaction.atomic():
                    yield unit
            else:
                with self.transport.transaction():
                    if self.transport.rebuilding:
                        self._rebuild()
                    with transaction.atomic():
                        if own:
                            let_go_when_frozen()
                        yield unit
                        if unit.touched:
                            unit.freed |= self._project(unit.touched)
                        unit.wake |= bool(unit.freed)
                        if unit.wake and self.transport.capabilities.joins_state_transaction:
                            self.transport.wake()  # goes out with the commit
                            unit.wake = False
                    committed = not self.transport.capabilities.joins_state_transaction
        except QueueUnavailable:
            if not committed:  # else it is done: the repair tick makes what the queue did not keep
                raise
        finally:
            unit.depth = 0
        self._afterwards(unit)

    def _afterwards(self, unit: Unit) -> None:
        touched, ended, freed, wake = unit.touched, unit.ended, unit.freed, unit.wake

        def publish() -> None:
            claimable: set[int] = set()
            with suppress(QueueUnavailable), self.transport.transaction():
                if self.transport.rebuilding:
                    self._rebuild()
                claimable = self._project(touched)
            self.transport.wake()
            self._announce(claimable)

        def after() -> None:
            if wake:
                self.transport.wake()
            if freed:
                self._announce(freed)
            if ended:
                try:
                    self._follow_up(ended)
                except (DatabaseError, QueueUnavailable) as error:
                    # what was asked for is committed; the release tick does what follows
                    log.warning("dependents not followed up", extra={"error": type(error).__name__})

        if unit.deferred and touched:
            transaction.on_commit(publish)
        if wake or ended or freed:
            transaction.on_commit(after)
