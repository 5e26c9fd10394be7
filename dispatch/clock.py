"""The clock that decides leases, and how times are told."""

from __future__ import annotations

from datetime import UTC, datetime

from django.db import connection


def store_now() -> datetime:
    """The database's own time, at this statement, on Postgres; the host's on SQLite, where there is one host."""
    if connection.vendor != "postgresql":
        return datetime.now(UTC)
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (moment,) = cursor.fetchone()
    assert isinstance(moment, datetime)
    return moment


def rfc3339(moment: datetime | None) -> str | None:
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z") if moment else None
