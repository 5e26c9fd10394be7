"""Critical sections that one holder in the whole fleet is in at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from django.db import OperationalError, connection, transaction

from dispatch.errors import GuardBusy, Invalid
from dispatch.maintenance.advisory_lock import KEY
from dispatch.network import silence

WAIT_S = 10.0
TAKE = f"SELECT pg_advisory_xact_lock({KEY})"


@contextmanager
def state_claim_guard(name: str, *, wait_s: float = WAIT_S) -> Iterator[None]:
    """Be alone in the section `name` among all processes that share this state store.

    The block is one transaction: what it writes has committed before the next holder enters, and is rolled back when
    it raises. A holder that dies frees the section. Inside a caller's own transaction the section lasts until that
    ends. Keep the block short and run no agent in it: it holds a connection, and on SQLite the file's one write lock,
    for which every other writer waits, whatever the name.

    Raises Invalid for a name that is empty, GuardBusy when the section is not free within `wait_s` seconds.
    """
    if not name:
        raise Invalid("a section has a name", fields={"name": "must not be empty"})
    with _postgres(name, wait_s) if connection.vendor == "postgresql" else _sqlite(name, wait_s):
        yield


@contextmanager
def _postgres(name: str, wait_s: float) -> Iterator[None]:
    """A transaction's advisory lock: it holds behind a transaction pooler too."""
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('lock_timeout')")
            (before,) = cursor.fetchone()
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [f"{_milliseconds(wait_s)}ms"])
            try:
                with silence.expected(wait_s):
                    cursor.execute(TAKE, [f"guard:{name}", 0])
            except OperationalError as error:
                if getattr(error.__cause__, "sqlstate", None) != "55P03":
                    raise
                raise GuardBusy(f"the section {name} was not free within {wait_s:g} s") from error
            cursor.execute("SELECT set_config('lock_timeout', %s, true)", [before])
        yield


@contextmanager
def _sqlite(name: str, wait_s: float) -> Iterator[None]:
    """Every transaction here takes the write lock at its start: that is the section."""
    if connection.in_atomic_block:
        yield
        return
    with ExitStack() as section:
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout")
            (before,) = cursor.fetchone()
            cursor.execute(f"PRAGMA busy_timeout = {_milliseconds(wait_s)}")
        try:
            section.enter_context(transaction.atomic())
        except OperationalError as error:
            if "locked" not in str(error):
                raise
            raise GuardBusy(f"the section {name} was not free within {wait_s:g} s") from error
        finally:
            with connection.cursor() as cursor:
                cursor.execute(f"PRAGMA busy_timeout = {int(before)}")
        yield


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))  # 0 would mean to wait for ever
