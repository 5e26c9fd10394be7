"""Install the step of a consumer, give the hot tables room for updates in place, and drop an index that nothing reads.

The function of the version before stays: workers that run it go on until they are restarted.
"""

from importlib.resources import files
from typing import Any

from django.db import migrations, models

INSTALLED = ("step_v2.postgres.sql", "admission_v1.postgres.sql")
# renewals, settlements and claims change no indexed column of these: with room on the page they write no index
ROOM = """
ALTER TABLE sessions SET (fillfactor = 70);
ALTER TABLE work_items SET (fillfactor = 80);
ALTER TABLE agent_dispatch_queue SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
"""
NO_ROOM = """
DROP FUNCTION IF EXISTS dispatch_step_v2;
ALTER TABLE sessions RESET (fillfactor);
ALTER TABLE work_items RESET (fillfactor);
ALTER TABLE agent_dispatch_queue RESET (fillfactor, autovacuum_vacuum_scale_factor);
"""


def run(schema_editor: Any, text: str) -> None:
    # without parameters the driver sends the text as it is, percent signs and all
    if schema_editor.connection.vendor == "postgresql":
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(text)


def install(apps, schema_editor):
    for name in INSTALLED:
        run(schema_editor, (files("dispatch.authority.sql") / name).read_text())
    run(schema_editor, ROOM)


def remove(apps, schema_editor):
    run(schema_editor, NO_ROOM)


class Migration(migrations.Migration):
    dependencies = [("dispatch", "0007_published_at"), ("sessions_app", "0001_initial")]

    operations = [
        # a unique column of Django's comes with a second index for LIKE, which every write of a turn pays for
        migrations.AlterField("workitem", "job_id", models.CharField(max_length=64)),
        migrations.AddConstraint("workitem", models.UniqueConstraint(fields=("job_id",), name="work_items_job_id")),
        migrations.RunPython(install, remove),
    ]
