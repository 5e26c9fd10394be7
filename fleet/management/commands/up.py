"""`manage.py up [--once] [--port N]`."""

from __future__ import annotations

import argparse
import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from fleet.quickstart import Problem, Stop, up


class Command(BaseCommand):
    help = "Make the tables, an operator and an API key, start web and worker here, and run one sample turn."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--once", action="store_true", help="stop after the sample turn; the last line is the job, as JSON"
        )
        parser.add_argument(
            "--port",
            type=port_number,
            metavar="N",
            help="loopback port of the web process (default: 8000 if it is free)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        once = options["once"]
        try:
            job = up(settings.FLEETSITE.data_dir, port=options["port"], once=once)
        except Stop as stop:
            raise SystemExit(128 + stop.number if once else 0) from None
        except Problem as problem:
            self.stderr.write(str(problem))
            raise SystemExit(1) from None
        self.stdout.write(json.dumps(job, ensure_ascii=False))
        if job is None or job["status"] != "succeeded":
            raise CommandError("The sample turn did not succeed.")


def port_number(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= 65535:
        return int(text)
    raise argparse.ArgumentTypeError(f"must be a whole number from 1 to 65535, not {text}")
