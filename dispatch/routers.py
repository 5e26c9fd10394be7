"""Which tables live in which store."""

from __future__ import annotations

from typing import Any

from django.db import connections


class QueueTableRouter:
    """Keep `agent_dispatch_queue` out of a SQLite state file: there the queue is a file of its own."""

    def allow_migrate(self, db: str, app_label: str, model_name: str | None = None, **hints: Any) -> bool | None:
        if app_label == "dispatch" and model_name == "queuedturn":
            return connections[db].vendor != "sqlite"
        return None
