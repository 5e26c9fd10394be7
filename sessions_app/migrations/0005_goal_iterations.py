"""Goals run: what an iteration leaves, a row for each of them, and no status beside the work item's own."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0004_audit_object")]

    operations = [
        migrations.RemoveIndex("goal", "goals_tenant_status"),
        migrations.RemoveField("goal", "status"),
        migrations.AddField("goal", "last_result", models.JSONField(null=True)),
        migrations.AddField("goal", "state", models.JSONField(null=True)),
        migrations.AddField("goal", "passed", models.BooleanField(default=False)),
        migrations.AddField("goal", "spent_s", models.FloatField(default=0.0)),
        migrations.AddIndex("goal", models.Index(fields=["tenant", "-id"], name="goals_tenant")),
        migrations.CreateModel(
            name="GoalIteration",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("work_item_id", models.BigIntegerField()),
                ("iteration", models.IntegerField()),
                ("epoch", models.IntegerField()),
                ("checkpoint_id", models.CharField(max_length=64)),
                ("passed", models.BooleanField()),
                ("validation", models.JSONField()),
                ("result_excerpt", models.TextField()),
                ("seconds", models.FloatField()),
                ("finished_at", models.DateTimeField()),
            ],
            options={"db_table": "goal_iterations"},
        ),
        migrations.AddConstraint(
            "goaliteration",
            models.UniqueConstraint(fields=("work_item_id", "iteration"), name="goal_iterations_once"),
        ),
    ]
