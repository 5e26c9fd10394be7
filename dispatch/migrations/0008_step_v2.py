"""Install the step of a consumer, give the hot tables room for updates in place, and drop an index that nothing reads.

The function of the version before stays: workers that run it go on until they are restarted.
"""

from django.db import migrations, models

from dispatch.migrations._postgres import installed

# a renewal changes no indexed column, most steps none of a session: with room on the page they write no index
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


class Migration(migrations.Migration):
    dependencies = [("dispatch", "0007_published_at"), ("sessions_app", "0001_initial")]

    operations = [
        # a unique column of Django's comes with a second index for LIKE, which every write of a turn pays for
        migrations.AlterField("workitem", "job_id", models.CharField(max_length=64)),
        migrations.AddConstraint("workitem", models.UniqueConstraint(fields=("job_id",), name="work_items_job_id")),
        installed("step_v2.postgres.sql", "admission_v1.postgres.sql", also=ROOM, removal=NO_ROOM),
    ]
