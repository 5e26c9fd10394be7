"""Check the invariants of the dispatch plane, and mend what is safe to mend."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from dispatch import wiring
from dispatch.errors import DispatchError
from dispatch.maintenance.checker import Checker
from dispatch.preflight import preflight

EXIT_FINDINGS = 1
EXIT_REFUSED = 2


class Command(BaseCommand):
    help = "Checks that items, sessions, queue rows, leases and workers agree. Exit 0: they do; 1: findings are left."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--repair", action="store_true", help="mend what is safe to mend, then check again")

    def handle(self, *args: Any, **options: Any) -> None:
        config = wiring.config()
        try:
            preflight()
            checker = Checker(wiring.authority(), tick_s=config.tick_s, stale_s=config.worker_stale_s)
            if options["repair"]:
                moved = checker.repair()
                self.stdout.write(f"repaired: {moved}")
            findings = checker.findings()
        except DispatchError as error:
            self.stderr.write(error.message)
            sys.exit(EXIT_REFUSED)
        for finding in findings:
            named = ", ".join(finding.references)
            hint = "" if finding.repairable else " (not mended by --repair)"
            self.stdout.write(f"{finding.label}: {finding.count}{hint}: {finding.rule}; {named}")
        if findings:
            sys.exit(EXIT_FINDINGS)
        self.stdout.write("no findings")
