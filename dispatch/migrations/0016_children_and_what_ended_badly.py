"""Two small indexes of work items: children that have not ended, and those that ended badly."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("dispatch", "0015_names_of_callbacks"), ("sessions_app", "0005_goal_iterations")]

    operations = [
        migrations.AddIndex(
            "workitem",
            models.Index(
                fields=["id"],
                condition=models.Q(parent_item_id__isnull=False, finished_at__isnull=True),
                name="work_items_open_children",
            ),
        ),
        migrations.AddIndex(
            "workitem",
            models.Index(
                fields=["status", "id"],
                condition=models.Q(status__in=["cancelled", "dead_letter", "failed"]),
                name="work_items_bad",
            ),
        ),
    ]
