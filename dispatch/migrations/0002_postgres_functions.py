"""Install what admits turns inside a Postgres state store, and keeps the account of the admission bound.

A new version of a function gets a new name and a new migration.
"""

from importlib.resources import files
from typing import Any

from django.db import migrations

INSTALLED = ("enqueue_v1.postgres.sql", "admission_v1.postgres.sql")
REMOVAL = """
DROP TRIGGER IF EXISTS admission_insert ON agent_dispatch_queue;
DROP TRIGGER IF EXISTS admission_delete ON agent_dispatch_queue;
DROP TRIGGER IF EXISTS admission_update ON agent_dispatch_queue;
DROP FUNCTION IF EXISTS admission_account_v1();
DROP FUNCTION IF EXISTS dispatch_step_v1;
DROP FUNCTION IF EXISTS dispatch_enqueue_v1;
"""


def run(schema_editor: Any, text: str) -> None:
    # without parameters the driver sends the text as it is, percent signs and all
    if schema_editor.connection.vendor == "postgresql":
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(text)


def install(apps, schema_editor):
    for name in INSTALLED:
        run(schema_editor, (files("dispatch.authority.sql") / name).read_text())


def remove(apps, schema_editor):
    run(schema_editor, REMOVAL)


class Migration(migrations.Migration):
    dependencies = [("dispatch", "0001_initial"), ("sessions_app", "0001_initial")]

    operations = [migrations.RunPython(install, remove)]
