"""bin/test on a server of the user's own: what it refuses, and that it leaves nothing behind."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.dispatch.postgres import ground
from tests.support.parts import missing
from tests.support.pgbouncer import NoPgBouncer, PgBouncer
from tests.support.postgres import create_database, with_database
from tests.support.server import NotUsable, check, own_database

pytestmark = [pytest.mark.store, pytest.mark.django_db(transaction=True)]
PASSWORD = "hidden-word"


def databases() -> set[str]:
    return {name for (name,) in ground.sql("SELECT datname FROM pg_database")}


@pytest.fixture
def poor_role() -> Iterator[str]:
    ground.sql("CREATE ROLE fleetsite_poor LOGIN PASSWORD 'poor'")
    yield "fleetsite_poor"
    ground.sql("DROP ROLE fleetsite_poor")


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("mysql://me@localhost/x", "must be a postgresql:// address"),
        ("postgresql://me@localhost/x?nonsense=1", "is not an address"),
        ("postgresql://me@localhost", "names no database"),
        (f"postgresql://me:{PASSWORD}@127.0.0.1:1/x", "cannot be reached"),
    ],
)
def test_a_wrong_address_is_refused_in_one_sentence_without_its_password(uri: str, said: str) -> None:
    with pytest.raises(NotUsable, match=said) as caught:
        check(uri)
    assert PASSWORD not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_user_who_may_not_create_databases_is_told_what_to_grant(poor_role: str) -> None:
    parts = urlsplit(ground.uri())
    uri = parts._replace(netloc=f"{poor_role}:poor@{parts.hostname}:{parts.port}").geturl()
    with pytest.raises(NotUsable, match=f"ALTER ROLE {poor_role} CREATEDB"):
        check(uri)


def test_a_pooler_is_refused() -> None:
    try:
        pooler = PgBouncer(ground.uri())
    except NoPgBouncer as refusal:
        missing(str(refusal))
    with pooler, pytest.raises(NotUsable, match="pooler"):
        check(pooler.uri)


def test_the_database_and_what_tests_made_beside_it_go_when_they_fail() -> None:
    before = databases()
    left_open: list[psycopg.Connection] = []

    def fail() -> None:
        with own_database(f"{ground.uri()}?application_name=mine") as uri:
            name = urlsplit(uri).path.removeprefix("/")
            assert uri.endswith("?application_name=mine"), "its options stay"
            create_database(uri, f"test_{name}")
            assert databases() - before == {name, f"test_{name}"}
            left_open.append(psycopg.connect(with_database(uri, f"test_{name}")))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert databases() == before
    left_open[0].close()


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_they_go_when_the_run_is_stopped(number: int, tmp_path: Path) -> None:
    before = databases()
    chosen = "tests/dispatch/postgres/test_leadership.py"
    argv = ["-m", "tests.support.suite", "--state-db-uri", ground.uri(), "-s", "-vv", chosen]
    with ground.python("suite", *argv, log=tmp_path / "log") as suite:
        suite.wait_for_text("Postgres of --state-db-uri, database fleetsite_", within=60)
        suite.wait_for_text("== Postgres", within=60)
        found = re.search(r"database (fleetsite_\w+)", suite.text())
        assert found is not None
        assert found[1] in databases()
        # at a terminal Ctrl-C reaches all of them
        suite.signal_group(number) if number == signal.SIGINT else suite.signal(number)
        assert suite.wait(within=60) in (130, 128 + number)
    assert databases() == before
