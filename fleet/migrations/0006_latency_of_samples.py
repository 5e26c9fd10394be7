"""Samples say how long turns waited and ran. Those that were written before say nothing of it."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0005_samples_and_content")]

    operations = [
        migrations.AddField("fleetsample", "wait_p50_s", models.FloatField(null=True)),
        migrations.AddField("fleetsample", "wait_p95_s", models.FloatField(null=True)),
        migrations.AddField("fleetsample", "run_p95_s", models.FloatField(null=True)),
    ]
