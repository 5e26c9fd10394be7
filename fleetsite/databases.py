"""The state store as Django's DATABASES entry: a SQLite file, or Postgres behind a pool."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from psycopg import IsolationLevel
from psycopg.conninfo import conninfo_to_dict

from dispatch.network import PATIENCE, BoundedConnection
from fleetsite.config import AgentConfig

POOL_WAIT_S = 10


def state_store(config: AgentConfig) -> dict[str, Any]:
    if config.state_db_uri is None:
        return sqlite(config.state_path)
    return postgres(config.state_db_uri.get_secret_value(), pool_size=config.state_db_pool_size)


def sqlite(path: Path) -> dict[str, Any]:
    """Every transaction takes the write lock at its start, since a read that turns into a write would fail at once.
    What has committed is on the disk: the queue's file is written after the state's, never before."""
    return {
        "ENGINE": "fleetsite.sqlite_store",
        "NAME": f"{path.as_uri()}?mode=rw",  # opened, never made: only `migrate` makes a state file
        "CONN_MAX_AGE": None,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;PRAGMA busy_timeout=30000",
        },
        # a file: tests use threads, and an in-memory database belongs to one connection
        "TEST": {"NAME": Path(tempfile.gettempdir()) / f"fleetsite-test-{os.getpid()}.db"},
    }


def postgres(uri: str, *, pool_size: int) -> dict[str, Any]:
    """Whatever the address says besides user, password, host, port and database goes to libpq as it is."""
    parts = dict(conninfo_to_dict(uri))
    return {
        "ENGINE": "fleetsite.postgres_store",
        "NAME": str(parts.pop("dbname", "")),
        "USER": parts.pop("user", ""),
        "PASSWORD": parts.pop("password", ""),
        "HOST": parts.pop("host", ""),
        "PORT": parts.pop("port", ""),
        "CONN_MAX_AGE": 0,  # Django's pool refuses anything else
        "CONN_HEALTH_CHECKS": True,  # the pool looks at a connection before it lends it: the server may have restarted
        "DISABLE_SERVER_SIDE_CURSORS": True,  # they fail behind a transaction pooler
        "OPTIONS": {
            **PATIENCE,
            **parts,
            "isolation_level": IsolationLevel.READ_COMMITTED,
            "pool": {
                "min_size": 1,
                "max_size": pool_size,
                "timeout": POOL_WAIT_S,
                # its tries come ever more seldom: who asks after this begins with new ones
                "reconnect_timeout": POOL_WAIT_S,
                "connection_class": BoundedConnection,
            },
        },
    }
