"""Samples for charts, operations that outlive their process, and the right to read what turns say.

No sample was ever written before.
"""

from __future__ import annotations

from typing import Any

from django.db import migrations, models

READERS = ("fleet-operator", "fleet-admin")


def let_read(apps: Any, schema_editor: Any) -> None:
    """Operators and administrators could read turns before: they keep it. Viewers could too, and no longer can."""
    using = schema_editor.connection.alias
    kind, _ = (
        apps.get_model("contenttypes", "ContentType")
        .objects.using(using)
        .get_or_create(app_label="fleet", model="turncontent")
    )
    permission, _ = (
        apps.get_model("auth", "Permission")
        .objects.using(using)
        .get_or_create(
            content_type=kind,
            codename="view_turn_content",
            defaults={"name": "Can read tasks, payloads, results and output of turns"},
        )
    )
    for group in apps.get_model("auth", "Group").objects.using(using).filter(name__in=READERS):
        group.permissions.add(permission)


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0004_operations"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [
        migrations.AlterField("fleetsample", "at", models.DateTimeField(unique=True)),
        migrations.AddField("fleetsample", "ready", models.IntegerField(null=True)),
        migrations.AddField("fleetsample", "slots", models.IntegerField(null=True)),
        migrations.AddField("fleetsample", "evidence", models.CharField(max_length=12, default="unavailable")),
        migrations.AddField("bulkoperation", "beat_at", models.DateTimeField(null=True)),
        migrations.AddIndex(
            "bulkoperation",
            models.Index(fields=["id"], condition=models.Q(status="running"), name="bulk_operations_running"),
        ),
        migrations.CreateModel(
            name="TurnContent",
            fields=[("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False))],
            options={
                "managed": False,
                "default_permissions": (),
                "permissions": [("view_turn_content", "Can read tasks, payloads, results and output of turns")],
            },
        ),
        migrations.RunPython(let_read, migrations.RunPython.noop),
    ]
