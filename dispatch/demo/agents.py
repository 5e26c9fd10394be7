"""The demo's agent: it says in a file of its own when it begins and ends, and counts turns in the session's state."""

from __future__ import annotations

import json
import os
import random
import time
import uuid
from typing import Any

from dispatch.agents import TurnContext, agent

JOURNAL = "FLEETSITE_DEMO_JOURNAL"  # the file's path; unset: no line is written
NAME = "demo_turn"
NAP_S = 0.02


def write_line(event: str, turn: TurnContext, run: str, **more: Any) -> None:
    """Append one line by one write(), so that the lines of many processes never mix and a SIGKILL takes none back.

    `t` is CLOCK_MONOTONIC, one clock for all processes of the host.
    """
    path = os.environ.get(JOURNAL)
    if not path:
        return
    row = {"ev": event, "job": turn.job_id, "run": run, "pid": os.getpid(), "t": time.monotonic(), **more}
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, (json.dumps(row) + "\n").encode())
    finally:
        os.close(descriptor)


@agent(NAME, max_attempts=100)
def demo_turn(turn: TurnContext) -> dict[str, Any]:
    """Sleep up to payload.most_s seconds; the state then names this run, so that the next turn can say what it saw."""
    run, seen, last = uuid.uuid4().hex, turn.state.get("turns", 0), turn.state.get("last")
    write_line("begin", turn, run, attempt=turn.attempt, seen=seen, last=last)
    end = time.monotonic() + random.uniform(0.0, float(turn.payload.get("most_s", 0.2)))
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(NAP_S, left))
        turn.raise_if_cancelled()
    turn.state["turns"], turn.state["last"] = seen + 1, run
    write_line("end", turn, run)
    return {"run": run}
