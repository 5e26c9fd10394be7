"""The trace context of a job, and the functions that know of it, of who saw a wish and of runs that have really ended."""

from importlib.resources import files
from typing import Any

from django.db import migrations, models

INSTALLED = ("enqueue_v2.postgres.sql", "step_v2.postgres.sql")
BEFORE = "DROP FUNCTION IF EXISTS dispatch_step_v2"  # its answer has another column: it cannot be replaced in place
REMOVAL = "DROP FUNCTION IF EXISTS dispatch_enqueue_v2"


def run(schema_editor: Any, text: str) -> None:
    # without parameters the driver sends the text as it is, percent signs and all
    if schema_editor.connection.vendor == "postgresql":
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(text)


def install(apps, schema_editor):
    run(schema_editor, BEFORE)
    for name in INSTALLED:
        run(schema_editor, (files("dispatch.authority.sql") / name).read_text())


def remove(apps, schema_editor):
    run(schema_editor, REMOVAL)


class Migration(migrations.Migration):
    dependencies = [("dispatch", "0008_step_v2"), ("sessions_app", "0002_seen_by")]

    operations = [
        migrations.AddField("workitem", "traceparent", models.CharField(max_length=55, null=True)),
        migrations.RunPython(install, remove),
    ]
