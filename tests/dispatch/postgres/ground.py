"""The test's Postgres database from outside: its address, sessions of one's own, processes of the product on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection

from tests.support.postgres import with_database
from tests.support.processes import Proc

ROOT = Path(__file__).resolve().parents[3]


def uri() -> str:
    """Of the test's own database, which has another name than the configured one."""
    return with_database(os.environ["STATE_DB_URI"], str(connection.settings_dict["NAME"]))


def sql(text: str, *values: Any) -> list[tuple[Any, ...]]:
    """Run one statement on a connection of its own; answers its rows, if it has any."""
    with psycopg.connect(uri(), autocommit=True) as own:
        cursor = own.execute(text, values or None)
        return cursor.fetchall() if cursor.description else []


def python(name: str, *arguments: object, log: Path, env: Mapping[str, str] | None = None) -> Proc:
    """A process that runs a module on the test's database."""
    variables = {**os.environ, "STATE_DB_URI": uri(), "PYTHONUNBUFFERED": "1", **(env or {})}
    return Proc(name, [sys.executable, *map(str, arguments)], log=log, env=variables, cwd=ROOT)
