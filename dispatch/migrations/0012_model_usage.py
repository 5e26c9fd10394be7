"""What turns spend on models."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("dispatch", "0011_goal_loops"),
    ]

    operations = [
        migrations.CreateModel(
            name="ModelTotal",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("agent_name", models.CharField(max_length=200)),
                ("requests", models.BigIntegerField(default=0)),
                ("input_tokens", models.BigIntegerField(default=0)),
                ("output_tokens", models.BigIntegerField(default=0)),
            ],
            options={
                "db_table": "model_totals",
                "constraints": [models.UniqueConstraint(fields=("agent_name",), name="model_totals_once")],
            },
        ),
        migrations.CreateModel(
            name="ModelUsage",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("epoch", models.IntegerField()),
                ("session_pk", models.BigIntegerField()),
                ("tenant", models.CharField(max_length=200)),
                ("agent_name", models.CharField(max_length=200)),
                ("model", models.CharField(max_length=200)),
                ("requests", models.IntegerField(default=0)),
                ("unpriced", models.IntegerField(default=0)),
                ("input_tokens", models.BigIntegerField(default=0)),
                ("output_tokens", models.BigIntegerField(default=0)),
                ("tool_calls", models.IntegerField(default=0)),
                ("cost", models.DecimalField(decimal_places=9, max_digits=18, null=True)),
                (
                    "work_item",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        to="dispatch.workitem",
                    ),
                ),
            ],
            options={
                "db_table": "model_usage",
                "indexes": [models.Index(fields=["session_pk"], name="model_usage_session")],
                "constraints": [
                    models.UniqueConstraint(fields=("work_item", "epoch", "model"), name="model_usage_once"),
                    models.CheckConstraint(
                        condition=models.Q(("requests__gte", models.F("unpriced")), ("unpriced__gte", 0)),
                        name="model_usage_priced",
                    ),
                ],
            },
        ),
    ]
