"""Keep the account of the admission bound inside a Postgres state store.

A new version of a function gets a new name and a new migration.
"""

from django.db import migrations

from dispatch.migrations._postgres import installed

REMOVAL = """
DROP TRIGGER IF EXISTS admission_insert ON agent_dispatch_queue;
DROP TRIGGER IF EXISTS admission_delete ON agent_dispatch_queue;
DROP TRIGGER IF EXISTS admission_update ON agent_dispatch_queue;
DROP FUNCTION IF EXISTS admission_account_v1();
DROP FUNCTION IF EXISTS dispatch_step_v1;
DROP FUNCTION IF EXISTS dispatch_enqueue_v1;
"""


class Migration(migrations.Migration):
    dependencies = [("dispatch", "0001_initial"), ("sessions_app", "0001_initial")]

    operations = [installed("admission_v1.postgres.sql", removal=REMOVAL)]
