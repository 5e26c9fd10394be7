"""Reads that do not come back: each is ended when its time is over, and what it was to tell is unknown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.db import DatabaseError, connection
from django.test import Client

from fleet.health import CONTROL, DEPENDENCIES, GOALS, QUEUE, REGISTRY
from fleet.reads import Reads, ReadTimedOut
from tests.dispatch.postgres.ground import uri
from tests.fleet import rows
from tests.fleet.test_faults import PARTS, TABLES, valid

pytestmark = [pytest.mark.django_db, pytest.mark.store]

ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("EACH_S", 0.4), ("TOGETHER_S", 0.9), ("AT_LEAST_S", 0.2), ("SLACK_S", 0.1)):
        monkeypatch.setattr(Reads, name, seconds)


@contextmanager
def locked(*tables: str) -> Iterator[None]:
    """Nobody reads these: another session holds them, as a migration may for long."""
    with psycopg.connect(uri()) as other:
        for table in tables:
            other.execute(f'LOCK TABLE "{table}" IN ACCESS EXCLUSIVE MODE')
        yield
        other.rollback()


def endless() -> None:
    with connection.cursor() as cursor:
        cursor.execute(ENDLESS)


def quick() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return int(cursor.fetchone()[0])


def wrong() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT nothing")


def test_a_read_without_end_is_ended_and_the_next_one_is_as_quick_as_ever() -> None:
    begun = time.monotonic()
    with Reads() as reads:
        for _ in range(3):
            with pytest.raises(ReadTimedOut):
                reads.read(endless)
        assert reads.read(quick) == 1
        with pytest.raises(DatabaseError):
            reads.read(wrong)
    assert time.monotonic() - begun < 3
    assert quick() == 1


def test_many_statements_of_one_read_have_its_time_together() -> None:
    def slowly() -> None:
        while True:
            quick()
            time.sleep(0.02)

    begun = time.monotonic()
    with Reads() as reads, pytest.raises(ReadTimedOut):
        reads.read(slowly)
    assert time.monotonic() - begun < 2


@pytest.mark.skipif(connection.vendor != "postgresql", reason="on SQLite a reader waits for nobody")
@pytest.mark.parametrize(
    "hung", [(GOALS,), (CONTROL,), (REGISTRY,), (QUEUE,), (GOALS, QUEUE), DEPENDENCIES], ids="+".join
)
def test_a_table_that_is_locked_is_unavailable_in_bounded_time(
    client: Client, fleet_queue: object, hung: tuple[str, ...]
) -> None:
    header = rows.key("t1", "read")
    with locked(*(TABLES[name] for name in hung)):
        begun = time.monotonic()
        answer = client.get("/api/fleet/health", headers=header)
        took = time.monotonic() - begun
        assert client.get("/readyz").status_code == 503
    body = valid(answer.json())
    assert took < 2.5
    assert (answer.status_code, body["evidence"]["status"]) == (503, "unavailable" if len(hung) == 4 else "partial")
    for name, dependency in body["evidence"]["dependencies"].items():
        assert dependency["diagnostics"] == (["ReadTimedOut"] if name in hung else [])
    assert {name for name, part in body.items() if part is None} == set().union(*(PARTS[name] for name in hung))
    assert client.get("/api/fleet/health", headers=header).status_code == 200, "it is read again as soon as it can be"
