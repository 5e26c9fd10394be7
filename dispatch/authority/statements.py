"""Named SQL statements from files, run on whichever database is the state store.

The statements are portable: SQLite ≥ 3.35 and Postgres read them alike. On SQLite they go to the driver's own
connection, which costs a third of Django's cursor; errors are Django's in both cases.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from itertools import chain
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connection, connections

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode  # made once: that costs more than its use
_NAME = re.compile(r"^-- name: (\w+)\s*$", re.M)


@cache
def _load(filename: str) -> dict[str, tuple[str, str]]:
    """{name: (statement for Postgres, the same for SQLite)}"""
    text = (files("dispatch.authority.sql") / filename).read_text()
    parts = _NAME.split(text)
    return {
        name: (body.strip(), body.strip().replace("%s", "?"))
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


class Statements:
    """The statements of one file: `run(name, params)` and `batch(name, rows)` answer rows."""

    def __init__(self, filename: str) -> None:
        self._statements = _load(filename)

    def run(self, name: str, params: Sequence[Any] | Mapping[str, Any] = ()) -> list[tuple[Any, ...]]:
        return self._execute(self._statements[name], params)

    def batch(
        self, name: str, rows: Sequence[Sequence[Any]], *, before: Sequence[Any] = (), after: Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Run one statement for all rows, of which there is at least one: they take the place of its `{rows}`.

        The parameters `before` and `after` are those of the placeholders on either side.
        """
        postgres, sqlite = self._statements[name]
        row = ", ".join(["%s"] * len(rows[0]))
        marks = ", ".join([f"({row})"] * len(rows))
        filled = postgres.replace("{rows}", marks), sqlite.replace("{rows}", marks.replace("%s", "?"))
        return self._execute(filled, [*before, *chain.from_iterable(rows), *after])

    def many(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        postgres, sqlite = self._statements[name]
        store = connections[DEFAULT_DB_ALIAS]
        if store.vendor == "sqlite":
            store.ensure_connection()
            with store.wrap_database_errors:
                store.connection.executemany(sqlite, rows)
            return
        with store.cursor() as cursor:
            cursor.executemany(postgres, list(rows))

    @staticmethod
    def _execute(statement: tuple[str, str], params: Sequence[Any] | Mapping[str, Any]) -> list[tuple[Any, ...]]:
        postgres, sqlite = statement
        store = connections[DEFAULT_DB_ALIAS]
        if store.vendor == "sqlite":
            store.ensure_connection()
            with store.wrap_database_errors:
                return list(store.connection.execute(sqlite, params).fetchall())
        with store.cursor() as cursor:
            cursor.execute(postgres, params)
            return list(cursor.fetchall()) if cursor.description else []


def to_db(moment: datetime | None) -> Any:
    """A time as this database takes it in a raw statement: UTC text on SQLite, as it is on Postgres."""
    if moment is None or connection.vendor != "sqlite":
        return moment
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


def from_db(value: Any) -> datetime | None:
    """The inverse of to_db, for values that a raw statement answered."""
    if value is None:
        return None
    moment = datetime.fromisoformat(value) if isinstance(value, str) else value
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def to_json(value: Any) -> str:
    """A value as a raw statement puts it into a JSON column; raises ValueError for NaN and infinity."""
    return _encode(value)
