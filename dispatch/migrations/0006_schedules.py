"""Schedules get their due times, why they are off, what became of each run, and counters."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("dispatch", "0005_claim_limits"),
    ]

    operations = [
        migrations.CreateModel(
            name="ScheduleCounter",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("outcome", models.CharField(max_length=10, unique=True)),
                ("count", models.BigIntegerField(default=0)),
                ("late_s", models.FloatField(default=0)),
            ],
            options={
                "db_table": "schedule_counters",
            },
        ),
        migrations.CreateModel(
            name="ScheduleRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("due_at", models.DateTimeField()),
                ("at", models.DateTimeField()),
                ("outcome", models.CharField(max_length=10)),
                ("job_id", models.CharField(blank=True, default="", max_length=64)),
                ("count", models.IntegerField(default=1)),
            ],
            options={
                "db_table": "schedule_runs",
            },
        ),
        migrations.AddField(
            model_name="schedule",
            name="due_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="last_error",
            field=models.CharField(blank=True, default="", max_length=100),
        ),
        migrations.AddField(
            model_name="schedule",
            name="paused_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="schedule",
            name="paused_by",
            field=models.CharField(blank=True, default="", max_length=200),
        ),
        migrations.AddField(
            model_name="schedule",
            name="paused_reason",
            field=models.CharField(blank=True, default="", max_length=500),
        ),
        migrations.AddField(
            model_name="schedule",
            name="refused_since",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("catch_up__in", ("skip", "once", "all"))), name="schedules_catch_up"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("overlap__in", ("enqueue", "skip", "coalesce"))), name="schedules_overlap"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("due_at__isnull", False), ("enabled", True), ("next_run_at__isnull", False)),
                    models.Q(("due_at__isnull", True), ("enabled", False), ("next_run_at__isnull", True)),
                    _connector="OR",
                ),
                name="schedules_due_while_enabled",
            ),
        ),
        migrations.AddField(
            model_name="schedulerun",
            name="schedule",
            field=models.ForeignKey(
                db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="runs", to="dispatch.schedule"
            ),
        ),
        migrations.AddIndex(
            model_name="schedulerun",
            index=models.Index(fields=["schedule", "id"], name="schedule_runs_newest"),
        ),
        migrations.AddConstraint(
            model_name="schedulerun",
            constraint=models.CheckConstraint(
                condition=models.Q(("outcome__in", ("queued", "manual", "coalesced", "skipped", "missed"))),
                name="schedule_runs_outcome",
            ),
        ),
    ]
