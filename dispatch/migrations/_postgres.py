"""What the migrations share that install functions in a Postgres state store: `RunPython` pairs that SQLite passes over."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from django.db import migrations


def installed(*names: str, also: str = "", removal: str) -> migrations.RunPython:
    """Run these files of `dispatch/authority/sql` and then `also`; backwards, run `removal`."""

    def install(apps: Any, schema_editor: Any) -> None:
        for name in names:
            _run(schema_editor, (files("dispatch.authority.sql") / name).read_text())
        _run(schema_editor, also)

    def remove(apps: Any, schema_editor: Any) -> None:
        _run(schema_editor, removal)

    return migrations.RunPython(install, remove)


def _run(schema_editor: Any, text: str) -> None:
    # without parameters the driver sends the text as it is, percent signs and all
    if text and schema_editor.connection.vendor == "postgresql":
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(text)
