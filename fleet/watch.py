"""End what `up` has started when it dies without a word, as by kill -9: nothing of it stays behind on the port.

    python fleet/watch.py SECONDS < PIPE

Each line of the pipe is the id of a process that leads a group. `over` says that they were ended in order; the pipe's
end without it, that nobody is left to do so: then each gets SIGTERM, and what is left of its group SIGKILL SECONDS
later. Standard library only; it works the same on every system that has process groups.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time


def main(seconds: float) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for `up`, whose end it waits for
    leaders = []
    for line in sys.stdin:
        if line.strip() == "over":
            return
        leaders.append(int(line))
    for leader in leaders:
        with contextlib.suppress(OSError):
            os.kill(leader, signal.SIGTERM)
    end = time.monotonic() + seconds
    while time.monotonic() < end and any(map(is_there, leaders)):
        time.sleep(0.1)
    for leader in leaders:
        with contextlib.suppress(OSError):
            os.killpg(leader, signal.SIGKILL)


def is_there(leader: int) -> bool:
    with contextlib.suppress(OSError):
        os.killpg(leader, 0)
        return True
    return False


if __name__ == "__main__":
    main(float(sys.argv[1]))
