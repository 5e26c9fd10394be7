"""Install the hot path of consumers that hold a broker's deliveries."""

from importlib.resources import files
from typing import Any

from django.db import migrations


def run(schema_editor: Any, text: str) -> None:
    # without parameters the driver sends the text as it is, percent signs and all
    if schema_editor.connection.vendor == "postgresql":
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(text)


def install(apps, schema_editor):
    run(schema_editor, (files("dispatch.authority.sql") / "deliver_v1.postgres.sql").read_text())


def remove(apps, schema_editor):
    run(schema_editor, "DROP FUNCTION IF EXISTS dispatch_deliver_v1")


class Migration(migrations.Migration):
    dependencies = [("dispatch", "0009_traceparent")]

    operations = [migrations.RunPython(install, remove)]
