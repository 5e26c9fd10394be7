"""Session advisory locks on a direct Postgres connection of their own: the server frees them when their holder dies."""

from __future__ import annotations

import contextlib

import psycopg

CONNECT_TIMEOUT_S = 5
# Locks belong to a database: the schema keeps two installations in one database apart.
KEY = "hashtextextended(concat_ws(':', current_schema(), %s::text, %s::bigint), 0)"
TAKE = f"SELECT pg_try_advisory_lock({KEY})"
PROBE = f"SELECT CASE WHEN pg_try_advisory_lock({KEY}) THEN pg_advisory_unlock({KEY}) ELSE false END"


class AdvisoryLock:
    """A lock for each term of a role. Never on a pooled connection, which would keep it for whoever gets it next."""

    def __init__(self, uri: str, name: str) -> None:
        self._uri = uri
        self._name = name
        self._connection: psycopg.Connection[tuple[object, ...]] | None = None
        self._held: int | None = None

    def hold(self, term: int) -> bool:
        """Take the term's lock, or see whether the session that has it still lives.

        False when another has it, or when it cannot be told.
        """
        if self._held == term and self._ask("SELECT true"):
            return True
        if self._held is not None:
            self.free()
        if self._ask(TAKE, self._name, term):
            self._held = term
        return self._held == term

    def is_free(self, term: int) -> bool:
        """Whether nobody has the term's lock: who took it is dead, or has let it go."""
        return self._ask(PROBE, self._name, term, self._name, term)

    def free(self) -> None:
        """Close the session, and with it the lock."""
        if self._connection is not None:
            with contextlib.suppress(psycopg.Error):
                self._connection.close()
        self._connection, self._held = None, None

    def _ask(self, query: str, *values: object) -> bool:
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self._uri, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S)
            row = self._connection.execute(query, values or None).fetchone()
        except psycopg.Error:
            self.free()
            return False
        return bool(row and row[0])
