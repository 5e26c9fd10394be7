"""The console script `agent-dispatch-worker`: the worker command without manage.py."""

from __future__ import annotations

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fleetsite.settings")
    execute_from_command_line([sys.argv[0], "run_dispatch_worker", *sys.argv[1:]])
