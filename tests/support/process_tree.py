"""A command that is hard to end: `process_tree.py PLACE`, run by tests as an agent's command.

Its first run makes a child, and a daemon that hears no SIGTERM with a daemon of its own, each in a session of its own;
each leaves a file `PLACE/<job>.<pid>`, and the command another, `PLACE/<job>.told`, when it gets SIGTERM. It ends by
itself after 100 seconds. A later run of the same job says so and ends at once.
"""

import os
import signal
import sys
import time

PLACE = sys.argv[1]
JOB = os.environ.get("FLEETSITE_JOB_ID", "tree")


def note(what: object) -> None:
    with open(f"{PLACE}/{JOB}.{what}", "w") as file:
        file.write(repr(time.monotonic()))


def told(*_: object) -> None:
    note("told")
    os._exit(0)


def stay() -> None:
    note(os.getpid())
    time.sleep(100)
    os._exit(0)


if any(name.startswith(f"{JOB}.") for name in os.listdir(PLACE)):
    print("again")
    sys.exit()
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() != 0:
        os._exit(0)
    if os.fork() == 0:
        os.setsid()
    stay()
if os.fork() == 0:
    stay()
signal.signal(signal.SIGTERM, told)
stay()
