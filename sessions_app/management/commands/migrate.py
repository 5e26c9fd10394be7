"""`migrate`, which alone may make a SQLite state file: everything else refuses to start on a missing one."""

from __future__ import annotations

from typing import Any

from django.core.management.commands.migrate import Command as MigrateCommand
from django.db import connections

from sessions_app.state_file import state_file


class Command(MigrateCommand):
    def execute(self, *args: Any, **options: Any) -> str | None:
        path = state_file(connections[options["database"]])
        if path is not None:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.touch(mode=0o600)
        result: str | None = super().execute(*args, **options)
        return result
