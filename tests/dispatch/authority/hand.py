"""One of several processes on a test's store: it dispatches its share, and works until nothing is left.

    python -m tests.dispatch.authority.hand DATABASE SEED SHARE TOTAL

It settles with most verbs, forgets some leases as if it had died, and helps itself to the ticks. What it cannot do
because the queue is away it does again.
"""

from __future__ import annotations

import os
import random
import sys
import time
from typing import Any


def main(database: str, seed: int, share: int, total: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "fleetsite.settings"
    import django

    django.setup()
    from django.db import connection

    connection.settings_dict["NAME"] = database
    Hand(seed, share, total).work()
    connection.close()


class Hand:
    def __init__(self, seed: int, share: int, total: int) -> None:
        self.random = random.Random(seed)
        self.owner = f"hand-{seed}"
        self.total = total
        self.ids = [f"orch-{seed:08x}{n:024x}" for n in range(share)]

    def work(self) -> None:
        from dispatch.errors import QueueUnavailable
        from tests.dispatch.authority import world

        pending: list[Any] = []
        end = time.monotonic() + 90
        while not self._over(world):
            if time.monotonic() > end:
                sys.exit(f"{self.owner}: not done in time")
            try:
                self._dispatch(world)
                result = world.step(pending, owner=self.owner, want=self.random.randint(1, 4), ttl_s=30)
                pending = [settlement for lease in result.claimed if (settlement := self._ended(lease, world))]
                self._tick(world)
            except QueueUnavailable as error:
                print(repr(error), repr(error.__cause__), flush=True)
                world.authority().recover()

    def _over(self, world: Any) -> bool:
        from dispatch.models import WorkItem

        if self.ids:
            return False
        ended = WorkItem.objects.filter(finished_at__isnull=False).count()
        return bool(ended == self.total)

    def _dispatch(self, world: Any) -> None:
        """Two at a time, under ids that a repeat finds again."""
        items = [
            world.new(f"s{self.random.randrange(6)}", job_id=job_id, fingerprint={"task": "x"}, max_attempts=1_000)
            for job_id in self.ids[:2]
        ]
        if items:
            world.authority().submit(items)
            del self.ids[: len(items)]

    def _ended(self, lease: Any, world: Any) -> Any:
        """How a run ended; None: it is forgotten, and its lease lapses."""
        fate = self.random.random()
        if fate < 0.05:
            world.lapse(lease)
            return None
        if fate < 0.10:
            return world.settlement(lease, "retry", code="agent_error", message="again")
        if fate < 0.15:
            return world.settlement(lease, "handback")
        ran = [*lease.state.get("ran", []), lease.session_seq]
        return world.settlement(lease, result=lease.turn_number, state={"ran": ran})

    def _tick(self, world: Any) -> None:
        transitions = world.authority().transitions
        chosen = self.random.choice([transitions.rescue, transitions.due, world.authority().repair, lambda: None])
        chosen()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:5]))
