"""What was coalesced into another turn, so that a repeat of the request finds it."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("dispatch", "0013_webhooks_and_reminders")]

    operations = [
        migrations.CreateModel(
            name="CoalescedRequest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("job_id", models.CharField(max_length=64)),
                (
                    "work_item",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="dispatch.workitem",
                    ),
                ),
                ("fingerprint", models.JSONField(null=True)),
            ],
            options={
                "db_table": "coalesced_requests",
                "indexes": [models.Index(fields=["work_item"], name="coalesced_requests_item")],
                "constraints": [models.UniqueConstraint(fields=("job_id",), name="coalesced_requests_once")],
            },
        ),
    ]
