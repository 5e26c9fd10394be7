"""`manage.py health_schema`: print the JSON schema that docs/fleet.health.v1.schema.json keeps."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from fleet.health_schema import health_schema


class Command(BaseCommand):
    help = "Print the JSON schema of GET /api/fleet/health, whose evidence is fleet.health.v1."
    requires_system_checks = []

    def handle(self, *args: Any, **options: Any) -> None:
        self.stdout.write(health_schema(), ending="")
