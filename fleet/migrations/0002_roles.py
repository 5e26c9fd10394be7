"""The groups of the console. What each may do is in `fleet.console.roles`."""

from __future__ import annotations

from typing import Any

from django.db import migrations

GROUPS = ("fleet-viewer", "fleet-operator", "fleet-admin")


def create(apps: Any, schema_editor: Any) -> None:
    group = apps.get_model("auth", "Group")
    for name in GROUPS:
        group.objects.get_or_create(name=name)


class Migration(migrations.Migration):
    dependencies = [("fleet", "0001_initial"), ("auth", "0012_alter_user_first_name_max_length")]

    # backwards keeps the groups: people are in them
    operations = [migrations.RunPython(create, migrations.RunPython.noop)]
