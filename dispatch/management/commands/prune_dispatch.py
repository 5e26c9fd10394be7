"""Delete what the retention settings call old, or count it."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from dispatch import wiring
from dispatch.errors import DispatchError
from dispatch.maintenance.aged import aged_tables
from dispatch.maintenance.preview import Preview
from dispatch.maintenance.pruner import Pruner, prune
from dispatch.maintenance.retention import Policy
from dispatch.preflight import preflight

EXIT_REFUSED = 2
EVERY_TENANT = "(all)"


class Command(BaseCommand):
    help = (
        "Deletes ended jobs, idle sessions and records past the AGENT_RETENTION_* settings, as the leader's tick does."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="count per tenant and table, and delete nothing")
        parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")

    def handle(self, *args: Any, **options: Any) -> None:
        config = wiring.config()
        policy, tables = Policy.of(config), aged_tables(config)
        try:
            preflight()
            if options["dry_run"]:
                counts: Mapping[str, Mapping[str, int]] = Preview(policy=policy, tables=tables).count()
            else:
                counts = {EVERY_TENANT: prune(Pruner(wiring.authority(), policy=policy, tables=tables))}
        except DispatchError as error:
            self.stderr.write(error.message)
            sys.exit(EXIT_REFUSED)
        total = sum(sum(tables.values()) for tables in counts.values())
        if options["json"]:
            self.stdout.write(json.dumps({"dry_run": options["dry_run"], "rows": counts, "total": total}))
            return
        for tenant, rows in counts.items():
            for table, number in sorted(rows.items()):
                self.stdout.write(f"{tenant or '-':<30} {table:<28} {number:>10}")
        self.stdout.write(f"{total} rows {'would go' if options['dry_run'] else 'deleted'}")
