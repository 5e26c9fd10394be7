"""Reads that stand alone: bounded in time, and none fails because another did."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Self, TypeVar

from django.db import close_old_connections, connection, transaction

READ_TIMEOUT_S = 5.0

T = TypeVar("T")


class Reads:
    """Several reads, one after the other: each ended by the database after so many seconds, and alone in its failure.

    On Postgres they share a transaction that carries the limit, until one fails; the next then begins another. SQLite
    is left alone: its reads wait for nobody, and a transaction there would take the write lock.
    """

    def __init__(self, seconds: float = READ_TIMEOUT_S) -> None:
        self._limit = str(int(seconds * 1000))
        self._open: ExitStack | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, one: Callable[[], T]) -> T:
        """What `one` answers; raises what it raises."""
        try:
            if connection.vendor == "postgresql" and self._open is None:
                self._begin()
            return one()
        except BaseException:
            self._close(failed=True)
            raise

    def _begin(self) -> None:
        opened = ExitStack()
        opened.enter_context(transaction.atomic())
        self._open = opened
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [self._limit])

    def _close(self, *, failed: bool = False) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            transaction.set_rollback(True)  # nothing was written; unlike a commit it cannot fail
            opened.close()
        if failed and not connection.in_atomic_block:
            close_old_connections()  # a connection that broke must not fail the next read too
