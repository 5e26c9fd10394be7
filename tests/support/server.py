"""A Postgres server of the user's own: a database of the tests' own on it, gone when they have ended."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tests.support.postgres import create_database, drop_database, with_database

OPTION = "--state-db-uri"
CONNECT_TIMEOUT_S = 5
OLDEST = 13  # DROP DATABASE … WITH (FORCE)
# pytest-django makes its databases beside the one that is named, under names of their own
MADE_BY_TESTS = "SELECT datname FROM pg_database WHERE datname = %s OR starts_with(datname, %s)"


class NotUsable(Exception):
    """The tests cannot run there; the message says what would be right, and never quotes a password."""


def check(uri: str) -> None:
    """Raise NotUsable unless a database can be made at this address, which must be the server's own."""
    if not uri.startswith(("postgresql://", "postgres://")):
        raise NotUsable(f"{OPTION}: must be a postgresql:// address, such as postgresql://me@localhost/postgres")
    try:
        named = conninfo_to_dict(uri).get("dbname")
    except psycopg.ProgrammingError:
        raise NotUsable(f"{OPTION}: is not an address that PostgreSQL's client library can read") from None
    if not named:
        raise NotUsable(f"{OPTION}: names no database; name one to connect to, such as postgres")
    try:
        with psycopg.connect(uri, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S) as connection:
            _check(connection)
    except psycopg.OperationalError as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise NotUsable(f"{OPTION}: the server cannot be reached: {reason}") from None


def _check(connection: psycopg.Connection) -> None:
    row = connection.execute(
        "SELECT pg_backend_pid(), rolname, rolcreatedb OR rolsuper FROM pg_roles WHERE rolname = current_user"
    ).fetchone()
    assert row is not None
    backend, user, may_create = row
    if backend != connection.info.backend_pid:
        raise NotUsable(f"{OPTION}: leads to a connection pooler; name the server's own address")
    if connection.info.server_version < OLDEST * 10_000:
        raise NotUsable(f"{OPTION}: the server is older than PostgreSQL {OLDEST}")
    if not may_create:
        raise NotUsable(
            f"{OPTION}: {user} may not create databases; ALTER ROLE {user} CREATEDB lets it, or name another"
        )


@contextmanager
def own_database(uri: str) -> Iterator[str]:
    """Make a database with a random name and answer its address; drop it, and what tests made beside it, at the end.

    Raises NotUsable as `check` does.
    """
    check(uri)
    name = f"fleetsite_{secrets.token_hex(6)}"
    try:
        yield create_database(uri, name)
    finally:
        with psycopg.connect(uri, connect_timeout=CONNECT_TIMEOUT_S) as connection:
            made = connection.execute(MADE_BY_TESTS, (name, f"test_{name}")).fetchall()
        for (database,) in made:
            drop_database(with_database(uri, database), via=uri)
