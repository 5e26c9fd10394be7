"""Install the hot path of consumers that hold a broker's deliveries."""

from django.db import migrations

from dispatch.migrations._postgres import installed


class Migration(migrations.Migration):
    dependencies = [("dispatch", "0009_traceparent")]

    operations = [installed("deliver_v1.postgres.sql", removal="DROP FUNCTION IF EXISTS dispatch_deliver_v1")]
