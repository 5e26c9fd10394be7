"""Processes that want to lead, with all the duties of a worker's ticks; one that dies is followed by a new one.

    python -m tests.dispatch.schedules.nursery DATABASE

They are forked from one that has everything loaded, so that a new one is there in no time. A holder is a process id.
"""

from __future__ import annotations

import os
import sys
import time

CANDIDATES = 2
TICK_S = 0.25


def main(database: str) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "fleetsite.settings"
    import django

    django.setup()
    from django.db import connection

    connection.settings_dict["NAME"] = database
    living: set[int] = set()
    while True:
        while len(living) < CANDIDATES:
            if not (child := os.fork()):
                _lead()
            living.add(child)
        gone, _ = os.wait()
        living.discard(gone)


def _lead() -> None:
    from dispatch import wiring
    from dispatch.maintenance.upkeep import make_ticks

    ticks = make_ticks(wiring.authority(), holder=str(os.getpid()), tick_s=TICK_S, stale_s=9, lock=wiring.leader_lock())
    while True:
        ticks.look()
        time.sleep(0.05)


if __name__ == "__main__":
    main(sys.argv[1])
