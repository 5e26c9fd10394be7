from __future__ import annotations

from typing import Any

import psycopg
from django.db.backends.postgresql import base

from dispatch.network import silence


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection of the pool; while Postgres is silent, none at once instead of none after a while."""

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        silence.refuse()
        try:
            return super().get_new_connection(conn_params)
        except psycopg.OperationalError:  # the pool is busy, or can make no connection
            silence.noted(unheard_s=self.pool.timeout)
            raise
