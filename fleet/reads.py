"""Reads that stand alone: bounded in time, and none fails because another did."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any, Self, TypeVar

from django.db import close_old_connections, connection, transaction

_SET_LIMIT = "SELECT set_config('statement_timeout', %s, true)"
_STEPS = 20_000  # of SQLite's machine between two looks at the clock: some tenths of a millisecond

log = logging.getLogger(__name__)

T = TypeVar("T")


class ReadTimedOut(Exception):
    """A read took longer than it may."""


class Reads:
    """Several reads, one after the other: each ended by the database when its time is over, and alone in its failure.

    A read of several statements has its time for all of them. On Postgres they share a transaction that carries the
    limit, until one fails; the next then begins another. SQLite needs no transaction, which would take the write lock:
    there the statement is interrupted.
    """

    EACH_S = 5.0
    TOGETHER_S = 10.0
    AT_LEAST_S = 0.5  # for a read that comes when the others have used up the time
    SLACK_S = 0.25  # the limit of a statement is set anew when it is off by this much

    def __init__(self) -> None:
        self._end = time.monotonic() + self.TOGETHER_S
        self._open: ExitStack | None = None
        self._limit_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self, one: Callable[[], T]) -> T:
        """What `one` answers; raises what it raises, or ReadTimedOut when it failed at the end of its time."""
        begun = time.monotonic()
        deadline = begun + max(self.AT_LEAST_S, min(self.EACH_S, self._end - begun))
        try:
            with self._limited(deadline):
                return one()
        except BaseException as error:
            self._close(failed=True)
            if isinstance(error, Exception) and time.monotonic() >= deadline - self.SLACK_S:
                raise ReadTimedOut from error
            raise

    def attempt(self, part: str, one: Callable[[], T], message: str = "part of the fleet page not read") -> T | None:
        """What `one` answers, or None when it fails in any way: that part is unknown, and the rest stands."""
        try:
            return self.read(one)
        except Exception as error:
            log.warning(message, extra={"part": part, "error": type(error).__name__})
            return None

    @contextmanager
    def _limited(self, deadline: float) -> Iterator[None]:
        def limit(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ReadTimedOut
            if self._open is not None and not left <= self._limit_s <= left + self.SLACK_S:
                self._limit_s = left + self.SLACK_S / 2
                execute(_SET_LIMIT, [str(int(self._limit_s * 1000))], False, context)
            return execute(sql, params, many, context)

        with self._store(deadline), connection.execute_wrapper(limit):
            yield

    def _store(self, deadline: float) -> AbstractContextManager[None]:
        if connection.vendor == "sqlite":
            return _interrupted_at(deadline)
        if self._open is None:
            self._open, self._limit_s = ExitStack(), 0.0
            self._open.enter_context(transaction.atomic())
        return nullcontext()

    def _close(self, *, failed: bool = False) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            transaction.set_rollback(True)  # nothing was written; unlike a commit it cannot fail
            opened.close()
        if failed and not connection.in_atomic_block:
            close_old_connections()  # a connection that broke must not fail the next read too


@contextmanager
def _interrupted_at(deadline: float) -> Iterator[None]:
    """Interrupt what this thread's SQLite connection does, or waits for, at that time."""
    connection.ensure_connection()
    driver = connection.connection
    (patience,) = driver.execute("PRAGMA busy_timeout").fetchone()
    driver.execute(f"PRAGMA busy_timeout = {max(1, int((deadline - time.monotonic()) * 1000))}")
    driver.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        yield
    finally:
        with suppress(sqlite3.ProgrammingError):  # it was closed meanwhile: its file was replaced
            driver.set_progress_handler(None, 0)
            driver.execute(f"PRAGMA busy_timeout = {patience}")
