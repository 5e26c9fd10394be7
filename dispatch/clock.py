"""The clock that decides leases, and how times are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from django.db import connection


def _host_now() -> datetime:
    return datetime.now(UTC)


_tell: Callable[[], datetime] = _host_now


def store_now() -> datetime:
    """The database's own time, at this statement, on Postgres; the host's on SQLite, where there is one host."""
    if connection.vendor != "postgresql":
        return _tell()
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (moment,) = cursor.fetchone()
    assert isinstance(moment, datetime)
    return moment


@contextmanager
def told_by(clock: Callable[[], datetime]) -> Iterator[None]:
    """Let `clock` tell the host's time, in a simulation on SQLite. Postgres goes on by its own."""
    global _tell
    _tell = clock
    try:
        yield
    finally:
        _tell = _host_now


def rfc3339(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment else None
