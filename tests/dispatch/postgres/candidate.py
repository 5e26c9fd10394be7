"""A process that wants to lead: python -m tests.dispatch.postgres.candidate HOLDER TICK_S [nolock]

It says each look as `holder term clock`; a term of 0 means that it does not lead.
"""

from __future__ import annotations

import os
import sys
import time


def main(holder: str, tick_s: float, locks: bool) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "fleetsite.settings"
    import django

    django.setup()
    from django.db import DatabaseError, connection

    from dispatch import wiring
    from dispatch.maintenance.leadership import Leader

    leader = Leader("test", holder=holder, tick_s=tick_s, lock=wiring.leader_lock() if locks else None)
    while True:
        try:
            leader.lead()
        except DatabaseError:
            connection.close()
        print(holder, leader.term, time.monotonic(), flush=True)
        time.sleep(tick_s)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), "nolock" not in sys.argv)
