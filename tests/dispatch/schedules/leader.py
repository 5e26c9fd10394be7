"""A process that leads by force, whatever any term says, on a test's store.

    python -m tests.dispatch.schedules.leader DATABASE UNTIL [unbooked | unpublished]

It looks at the schedules until the unix time UNTIL, and ends by itself. `unbooked`: it is killed after its first
dispatch, before that is booked and committed; `unpublished`: after the commit, before the queue's file is written.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import UTC, datetime
from typing import Any


def main(database: str, until: float, dies: str) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "fleetsite.settings"
    import django

    django.setup()
    from django.db import connection

    from dispatch import wiring
    from dispatch.maintenance import schedule_runs
    from dispatch.maintenance.schedules import Materializer

    connection.settings_dict["NAME"] = database
    place: Any = {"unbooked": schedule_runs, "unpublished": wiring.transport()}.get(dies)
    if dies == "unbooked":
        place.submit = _then_die(place.submit)
    if dies == "unpublished":
        place.publish = _die

    end = datetime.fromtimestamp(until, UTC)
    materializer = Materializer(leads=lambda: True, tick_s=5, clock=lambda: min(datetime.now(UTC), end))
    materializer.run_once()
    while time.time() < until + 1:
        time.sleep(0.01)
        materializer.run_once()
    connection.close()


def _then_die(call: Any) -> Any:
    def called(*given: Any, **named: Any) -> None:
        call(*given, **named)
        _die()

    return called


def _die(*_: Any, **__: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
