"""The trace context of a job, and the function that admits turns with it.

The function of the version before stays: web processes that run it go on until they are restarted.
"""

from django.db import migrations, models

from dispatch.migrations._postgres import installed


class Migration(migrations.Migration):
    dependencies = [("dispatch", "0008_step_v2"), ("sessions_app", "0002_seen_by")]

    operations = [
        migrations.AddField("workitem", "traceparent", models.CharField(max_length=55, null=True)),
        installed("enqueue_v2.postgres.sql", removal="DROP FUNCTION IF EXISTS dispatch_enqueue_v2"),
    ]
