"""What goal loops need: their index, room for the iteration in a step's name, and the checks that workers announce."""

from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    dependencies = [("dispatch", "0010_deliver_function"), ("sessions_app", "0005_goal_iterations")]

    operations = [
        migrations.AddIndex(
            "workitem",
            models.Index(fields=["status", "-id"], condition=Q(kind="goal_loop"), name="work_items_goals"),
        ),
        migrations.AlterField("stepresult", "name", models.CharField(max_length=220)),
        migrations.CreateModel(
            name="KnownCheck",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200, unique=True)),
                ("first_seen", models.DateTimeField()),
                ("last_seen", models.DateTimeField()),
            ],
            options={"db_table": "known_checks"},
        ),
    ]
