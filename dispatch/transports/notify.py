"""The ear of a loop on Postgres: LISTEN on a direct connection of its own. Polling stays the fallback."""

from __future__ import annotations

import contextlib
import time

import psycopg

CHANNEL = "fleetsite_turns"
CONNECT_TIMEOUT_S = 5
RECONNECT_S = 1.0


class NotifyListener:
    """`wait` answers True when woken. A lost connection is opened anew; what was missed meanwhile is for the poll."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._closed = False

    def _listen(self) -> psycopg.Connection[tuple[object, ...]]:
        if self._connection is None:
            opened = psycopg.connect(self._uri, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S)
            opened.execute(f"LISTEN {CHANNEL}")
            self._connection = opened
        return self._connection

    def wait(self, timeout_s: float) -> bool:
        """Sleep until a notice comes, or the time is over. True once it listens (anew): notices may be lost."""
        fresh = self._connection is None
        try:
            connection = self._listen()
            if fresh:
                return True
            return any(True for _ in connection.notifies(timeout=timeout_s, stop_after=1))
        except (psycopg.Error, OSError):
            self._drop()
            if not self._closed:
                time.sleep(min(timeout_s, RECONNECT_S))
            return False

    def _drop(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
            self._connection = None

    def close(self) -> None:
        self._closed = True
        self._drop()
