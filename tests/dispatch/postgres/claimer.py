"""A process of several claim loops: python -m tests.dispatch.postgres.claimer NAME LOOPS WANT

It says `ready` when it begins. Each loop claims, holds what it got for a few milliseconds, and settles it, until all
has ended.
"""

from __future__ import annotations

import os
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor


def main(name: str, loops: int, want: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "fleetsite.settings"
    import django

    django.setup()
    from django.db import connection

    from dispatch.models import WorkItem
    from dispatch.ports import Lease
    from tests.dispatch.authority import world

    def claim(number: int) -> int:
        held: list[Lease] = []
        claimed = 0
        while held or WorkItem.objects.filter(finished_at__isnull=True).exists():
            owner = f"{name}-{number}"
            # settled by itself: a step that settles and claims takes the places that it frees, and nobody would race
            assert not world.step([world.settlement(lease) for lease in held], owner=owner).lost
            held = world.claim(owner, want)
            claimed += len(held)
            time.sleep(random.uniform(0.001, 0.01))
        connection.close()
        return claimed

    print("ready", flush=True)
    with ThreadPoolExecutor(loops) as pool:
        print(sum(pool.map(claim, range(loops))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
