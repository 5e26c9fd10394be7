"""How long turns waited for another worker after theirs was taken away."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from dispatch.demo.journal import Run, runs_by_job
from dispatch.demo.nemesis import Blow


@dataclass(slots=True)
class Recovery:
    """Seconds from a blow to the next begin of each turn that it took away; `mixed`: another fault came in between."""

    seconds: list[float] = field(default_factory=list)
    mixed: int = 0

    @property
    def most(self) -> float:
        return max(self.seconds, default=0.0)

    def __str__(self) -> str:
        if not self.seconds:
            return "no turn was taken away"
        mixed = f", {self.mixed} more mixed with other faults" if self.mixed else ""
        return f"p50 {median(self.seconds):.2f} s, max {self.most:.2f} s of {len(self.seconds)} turns{mixed}"


def recovery_after(number: int, blows: Sequence[Blow], runs: Mapping[str, Run], committed: set[str]) -> Recovery:
    """After SIGKILL or SIGTERM. `committed`: the runs whose results stand; they were not taken away.

    A wait is mixed when the store was away during it, or when the turn was claimed in between by a worker that was hit
    before it began.
    """
    found = Recovery()
    outages = [(blow.at, blow.until) for blow in blows if blow.outage]
    by_job = runs_by_job(runs.values())
    for blow in blows:
        if blow.signal != number:
            continue
        for mine in by_job.values():
            at = max((n for n, run in enumerate(mine) if run.begin <= blow.at), default=-1)
            victim = mine[at] if at >= 0 else None
            if victim is None or victim.pid != blow.pid or victim.run in committed or at + 1 == len(mine):
                continue
            following = mine[at + 1]
            used = 1 if number == signal.SIGKILL else 0  # a hand-back uses no attempt
            clean = following.attempt == victim.attempt + used
            if not clean or any(blow.at <= until and begun <= following.begin for begun, until in outages):
                found.mixed += 1
            else:
                found.seconds.append(following.begin - blow.at)
    return found
