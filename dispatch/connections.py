"""Database connections are few: who waits for something else holds none."""

from __future__ import annotations

from django.db import connections


def release_connections() -> None:
    """Give the thread's database connections back, but for one that is inside a transaction."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
