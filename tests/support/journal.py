"""What agents of a test really did, written by themselves: one line per fact, which a SIGKILL cannot take back.

A *run* is one `begin` line with the lines that share its nonce. The nonce is in the run's result too, so a job's result
tells which run was committed. Times are CLOCK_MONOTONIC, one clock for all processes of the host.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VARIABLE = "FLEET_JOURNAL"
ENDS = frozenset({"end", "told", "boom", "again", "ask"})


def write(event: str, job_id: str, session_id: str, nonce: str, **more: Any) -> None:
    """Append one line by one write(), so that the lines of many processes never mix."""
    row = {"ev": event, "job": job_id, "session": session_id, "nonce": nonce, "pid": os.getpid(), "t": time.monotonic()}
    descriptor = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, (json.dumps(row | more) + "\n").encode())
    finally:
        os.close(descriptor)


@dataclass
class Run:
    """One run of an agent. `began` holds what it could see of its session; `end`: None until it ends."""

    job: str
    session: str
    nonce: str
    pid: int
    begin: float
    began: dict[str, Any]
    end: float | None = None
    how: str | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)


class Journal:
    """Reads the file that the agents append to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        with self.path.open("rb") as written:
            return [json.loads(line) for line in written if line.endswith(b"\n")]

    def runs(self, *jobs: str) -> list[Run]:
        """Runs in order of their begin; of these jobs alone, if any are named."""
        runs: dict[str, Run] = {}
        for row in self.lines():
            if jobs and row["job"] not in jobs:
                continue
            if row["ev"] == "begin":
                runs[row["nonce"]] = Run(row["job"], row["session"], row["nonce"], row["pid"], row["t"], row)
            run = runs[row["nonce"]]
            run.lines.append(row)
            if row["ev"] in ENDS:
                run.end, run.how = row["t"], row["ev"]
        return sorted(runs.values(), key=lambda run: run.begin)

    def events(self, job: str, event: str) -> list[dict[str, Any]]:
        return [row for row in self.lines() if row["job"] == job and row["ev"] == event]


def assert_sessions_in_order(
    journal: Journal, jobs: Iterable[Mapping[str, Any]], *, frozen: Sequence[int] = ()
) -> None:
    """Hold the committed runs of each session against each other: order, no overlap, and the state each one saw.

    Runs of pids that were frozen may overlap others in time; what they committed may not.
    """
    sessions: dict[str, list[Mapping[str, Any]]] = {}
    for job in jobs:
        if job["status"] == "succeeded":
            sessions.setdefault(job["session_id"], []).append(job)
    runs = {run.nonce: run for run in journal.runs()}
    for session, ended in sessions.items():
        before: Run | None = None
        for number, job in enumerate(sorted(ended, key=lambda one: one["session_seq"])):
            run = runs[job["result"]["nonce"]]
            assert run.how == "end", f"{job['job_id']} shows the result of a run that did not end"
            assert run.began["n"] == number, f"{session}: turn {number + 1} saw the state of {run.began['n']} turns"
            if before is not None:
                assert run.began["last"] == before.nonce, f"{session}: turn {number + 1} saw another turn's state"
                assert before.end is not None
                assert run.begin >= before.end, f"{session}: turn {number + 1} began before the one in front ended"
            before = run
    live = sorted((r for r in runs.values() if r.session in sessions and r.pid not in frozen), key=lambda r: r.begin)
    last: dict[str, Run] = {}
    for run in live:
        earlier = last.get(run.session)
        if earlier is not None and earlier.end is not None:
            assert run.begin >= earlier.end, f"two runs of session {run.session} at once: {earlier.nonce}, {run.nonce}"
        last[run.session] = run
