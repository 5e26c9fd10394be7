"""The witness lines of the demo's agents, read back as runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(slots=True)
class Run:
    """One run of a turn: who ran it when (CLOCK_MONOTONIC), and what it saw of its session. `end`: None if never."""

    job: str
    run: str
    pid: int
    begin: float
    attempt: int
    seen: int
    last: str | None
    end: float | None = None


def read_runs(path: Path) -> dict[str, Run]:
    """Runs by their id, in the order of their begin lines. A half line, cut by a full disk, is left out."""
    if not path.exists():
        return {}
    runs: dict[str, Run] = {}
    with path.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                continue
            row = json.loads(line)
            if row["ev"] == "begin":
                seen, last = row["seen"], row["last"]
                runs[row["run"]] = Run(row["job"], row["run"], row["pid"], row["t"], row["attempt"], seen, last)
            elif row["run"] in runs:
                runs[row["run"]].end = row["t"]
    return runs


def runs_by_job(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs of each job, by the time of their begin."""
    found: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.begin):
        found.setdefault(run.job, []).append(run)
    return found
