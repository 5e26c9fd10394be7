"""How long a silent network, or a silent server, is believed in."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

# What libpq is told on every connection to Postgres. A peer that has vanished without a word, its packets dropped on
# the way, is found out well within the half minute after which a blind claim loop gives up. What the operator's own
# address says wins.
PATIENCE: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # milliseconds that sent data may stay without an answer of the peer's kernel
}


def patient(uri: str, **more: str) -> str:
    """The address with these limits added where it sets none, and `more` put in."""
    parts: dict[str, Any] = {**PATIENCE, **conninfo_to_dict(uri), **more}
    return make_conninfo(**parts)


class StoreSilent(psycopg.OperationalError):
    """Postgres gave no answer in time."""


class Silence:
    """Whether Postgres has fallen silent, as this process sees it.

    A server whose processes are frozen keeps its connections, and its kernel acknowledges what is sent: no limit of
    libpq or of the server ends such a wait. A process that answers callers says so (`answers_callers`): there a
    statement that gets no answer in `STATEMENT_S` ends with its connection. What comes next is refused at once, but for
    one caller after each pause, who finds out: so the others' threads stay free to say so.
    """

    STATEMENT_S = 8.0
    AGAIN_S = 1.0  # of each further connection that the pool has, before one of them has answered
    PAUSE_S = 1.0  # a request that reads on after a read has failed is not the one to try

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own = threading.local()  # what a thread's statements may wait longer
        self._limited = False
        self._silent = False
        self._next_try = 0.0
        self._heard_at = -math.inf

    def answers_callers(self) -> None:
        """From now on this process's statements are bounded."""
        self._limited = True

    @property
    def limit_s(self) -> float | None:
        """How long one statement may wait; None where claim loops and commands have rules of their own."""
        if not self._limited:
            return None
        return (self.AGAIN_S if self._silent else self.STATEMENT_S) + float(getattr(self._own, "more_s", 0))

    @contextmanager
    def expected(self, seconds: float) -> Iterator[None]:
        """The caller's statements may take so much longer: they wait for somebody, under a limit of their own."""
        self._own.more_s = seconds
        try:
            yield
        finally:
            self._own.more_s = 0

    def heard(self) -> None:
        self._heard_at, self._silent = time.monotonic(), False

    def noted(self, *, unheard_s: float = 0.0) -> None:
        """A wait was in vain; it is a sign of silence when nobody else was answered for so long."""
        now = time.monotonic()
        with self._lock:
            if self._limited and now - self._heard_at >= unheard_s:
                self._silent, self._next_try = True, now + self.PAUSE_S

    def refuse(self) -> None:
        """Raise StoreSilent while Postgres is silent, unless it is this caller's turn to try."""
        with self._lock:
            if not self._silent:
                return
            now = time.monotonic()
            if now < self._next_try:
                raise StoreSilent("Postgres gave no answer a moment ago")
            self._next_try = now + self.STATEMENT_S + self.PAUSE_S  # by then this caller knows


silence = Silence()


class BoundedConnection(psycopg.Connection[Any]):
    """Its statements wait no longer than `silence` lets them; then it is closed, for nobody knows what was done."""

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        limit = silence.limit_s
        if limit is None or timeout is not None:
            return super().wait(gen, interval, timeout)
        try:
            answer = super().wait(gen, interval, limit)
        except psycopg.errors._WaitTimeout:
            self.pgconn.finish()
            silence.noted()
            raise StoreSilent(f"Postgres gave no answer in {limit:g} s") from None
        silence.heard()
        return answer
