"""What must hold before a worker claims anything; each failure names its setting."""

from __future__ import annotations

from typing import Any

import psycopg
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from psycopg.conninfo import conninfo_to_dict

from dispatch import wiring
from dispatch.errors import DispatchError, TaskQueueUnavailable
from dispatch.models import WorkItem
from sessions_app.state_file import state_file

CONNECT_TIMEOUT_S = 5


def preflight() -> None:
    """Reach the state store, read a WorkItem, open the queue, reach its broker.

    Raises TaskQueueUnavailable with one sentence.
    """
    _reach_store()
    try:
        WorkItem.objects.order_by("pk").values_list("pk", flat=True).first()
        pending = MigrationExecutor(connection).migration_plan(MigrationExecutor(connection).loader.graph.leaf_nodes())
    except DatabaseError as error:
        raise TaskQueueUnavailable(
            f"{_setting()}: the state store has no readable work_items table ({type(error).__name__}); run migrate"
        ) from error
    if pending:
        raise TaskQueueUnavailable(f"{_setting()}: the state store lacks {len(pending)} migrations; run migrate")
    try:
        authority = wiring.authority()
        if (envelopes := authority.transport.envelopes) is not None:
            envelopes.open()
        with authority.transport.transaction():
            authority.transport.rows([])
    except TaskQueueUnavailable:
        raise  # it names its own setting
    except DispatchError as error:
        raise TaskQueueUnavailable(f"TASK_QUEUE_BACKEND: {error.message}") from error


def _setting() -> str:
    return "AGENT_DATA_DIR" if connection.vendor == "sqlite" else "STATE_DB_URI"


def _reach_store() -> None:
    if connection.vendor == "sqlite":
        path = state_file(connection)
        if path is not None and not path.exists():
            raise TaskQueueUnavailable(f"AGENT_DATA_DIR: there is no state file {path}; run migrate, or restore it")
        return
    # the pool's own time-out does not say what it tried
    config = wiring.config()
    if config.state_db_uri is not None:
        _connect("STATE_DB_URI", config.state_db_uri.get_secret_value()).close()
        _refuse_pooler(config.direct_uri.get_secret_value())


def _connect(setting: str, uri: str) -> psycopg.Connection[tuple[Any, ...]]:
    try:
        return psycopg.connect(uri, connect_timeout=CONNECT_TIMEOUT_S, autocommit=True)
    except psycopg.Error as error:
        parts = conninfo_to_dict(uri)
        where = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
        raise TaskQueueUnavailable(f"{setting}: no Postgres answered at {where} ({type(error).__name__})") from error


def _refuse_pooler(direct_uri: str) -> None:
    """LISTEN and session locks seem to work behind a transaction pooler and do not.

    The tell: the process that greeted the client is not the one that answers.
    """
    with _connect("STATE_DB_DIRECT_URI", direct_uri) as direct:
        (answering,) = direct.execute("SELECT pg_backend_pid()").fetchone() or (0,)
        if answering != direct.info.backend_pid:
            raise TaskQueueUnavailable(
                "STATE_DB_DIRECT_URI: a transaction pooler answers there; set it to the address of the server itself, "
                "which LISTEN and leadership need"
            )
