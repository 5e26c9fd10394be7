"""A process of many threads that dispatch: python -m tests.dispatch.postgres.producer NUMBER THREADS EACH

It ends with the number of jobs that were admitted.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor


def main(number: int, threads: int, each: int) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "fleetsite.settings"
    import django

    django.setup()
    from django.db import connection

    from dispatch import wiring
    from dispatch.errors import QueueFull
    from tests.dispatch.authority import world

    authority = wiring.authority()

    def produce(thread: int) -> int:
        admitted = 0
        for n in range(each):
            try:
                authority.submit([world.new(f"p{number}-{thread}-{n}")])
                admitted += 1
            except QueueFull:
                continue
            finally:
                connection.close()  # as a request gives its connection back
        return admitted

    with ThreadPoolExecutor(threads) as pool:
        print(sum(pool.map(produce, range(threads))), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
