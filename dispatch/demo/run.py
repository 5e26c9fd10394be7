"""One demo from start to verdict: workers, turns, faults, a line a second, and the proof."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.db import DatabaseError, connection

from dispatch import states
from dispatch.demo.crew import Crew
from dispatch.demo.history import Verdict, prove
from dispatch.demo.journal import read_runs
from dispatch.demo.load import TENANT, Load, StoreAway
from dispatch.demo.nemesis import Nemesis
from dispatch.demo.recovery import Recovery, recovery_after
from dispatch.models import DispatchWorker, Outcome, WorkItem
from dispatch.parts import parts

LOOK_S = 0.05
COUNT_S = 0.25
READY_S = 60.0
AHEAD = 3  # rounds that are given out and not done


class NoWorker(Exception):
    """No worker of the demo came to claim; its log tells why."""


def live_pids() -> set[int]:
    """Processes that the registry shows; those of a store that is away are not seen."""
    try:
        return set(DispatchWorker.objects.values_list("pid", flat=True))
    except DatabaseError:
        if not connection.in_atomic_block:
            connection.close()
        return set()


@dataclass(kw_only=True, slots=True)
class Report:
    """What a demo proved and measured."""

    verdict: Verdict
    faults: Mapping[str, int]
    after_kill: Recovery
    after_term: Recovery
    seconds: float
    done: Mapping[str, int] = field(default_factory=dict)

    @property
    def kept(self) -> bool:
        return self.verdict.kept


class Demo:
    """Runs until `rounds` rounds are done, `seconds` have passed and `enough` says so, and all turns have ended."""

    def __init__(
        self,
        *,
        load: Load,
        crew: Crew,
        journal: Path,
        nemesis: Nemesis | None,
        rounds: int,
        seconds: float,
        tell: Callable[[str], None],
        enough: Callable[[], bool] = lambda: True,
    ) -> None:
        self._load = load
        self._crew = crew
        self._journal = journal
        self._nemesis = nemesis
        self._rounds = rounds
        self._seconds = seconds
        self._tell = tell
        self._enough = enough
        self._began = time.monotonic()
        self._counts: Counter[str] = Counter()
        self._next_count = 0.0
        self._next_line = 0.0

    def run(self) -> None:
        """Everything but the proof. The caller stops the crew."""
        self._until_ready()
        self._began = time.monotonic()
        while not self._given_out() or self._unfinished():
            self._crew.keep()
            if self._nemesis is not None and not self._given_out():
                self._nemesis.look()
            self._give_out()
            self._count()
            time.sleep(LOOK_S)
        self._crew.heal()
        self._line()

    def report(self) -> Report:
        runs = read_runs(self._journal)
        verdict = prove(TENANT, self._load.handles, runs, self._load.rows_left())
        if self._load.doubled:
            verdict.problems.append(f"I2: two live leases of one session were seen {self._load.doubled} times")
        blows = self._nemesis.blows if self._nemesis is not None else []
        committed = _committed(self._load.handles)
        return Report(
            verdict=verdict,
            faults=self._nemesis.tallies() if self._nemesis is not None else Counter(),
            after_kill=recovery_after(signal.SIGKILL, blows, runs, committed),
            after_term=recovery_after(signal.SIGTERM, blows, runs, committed),
            seconds=time.monotonic() - self._began,
            done=dict(self._counts),
        )

    def _until_ready(self) -> None:
        end = time.monotonic() + READY_S
        while not self._crew.healthy():
            self._crew.keep()
            if time.monotonic() > end:
                raise NoWorker("no worker was ready to claim after a minute; see its log")
            time.sleep(LOOK_S)

    def _given_out(self) -> bool:
        enough = self._load.rounds >= self._rounds and time.monotonic() - self._began >= self._seconds
        return enough and self._enough()

    def _unfinished(self) -> int:
        return len(self._load.handles) - self._done()

    def _done(self) -> int:
        return sum(count for status, count in self._counts.items() if status in states.TERMINAL)

    def _give_out(self) -> None:
        if self._given_out() or self._unfinished() > AHEAD * self._load.sessions:
            return
        try:
            self._load.dispatch_round()
        except StoreAway:
            return  # the keys make the next try find what this one has admitted

    def _count(self) -> None:
        now = time.monotonic()
        if now < self._next_count:
            return
        self._next_count = now + COUNT_S
        try:
            self._counts = self._load.counts()
        except StoreAway:
            return
        if now >= self._next_line:
            self._next_line = now + 1.0
            self._line()

    def _line(self) -> None:
        running = sum(count for status, count in self._counts.items() if status in states.LIVE)
        faults = sum(self._nemesis.tallies().values()) if self._nemesis is not None else 0
        turns = f"{self._done()}/{len(self._load.handles)} turns  {running} running"
        workers = f"{len(self._crew.healthy())}/{self._crew.size} workers"
        self._tell(f"{time.monotonic() - self._began:4.0f} s  {turns}  {workers}  {faults} faults")


def _committed(handles: Mapping[str, str]) -> set[str]:
    """The runs whose results stand."""
    jobs = list(handles)
    found: set[str] = set()
    for part in parts(jobs, 500):
        epochs = dict(WorkItem.objects.filter(job_id__in=part).values_list("pk", "epoch"))
        rows: list[tuple[int, int, Any]] = list(
            Outcome.objects.filter(work_item_id__in=list(epochs)).values_list("work_item_id", "epoch", "result")
        )
        found |= {str(result["run"]) for pk, epoch, result in rows if result and epochs[pk] == epoch}
    return found


def in_words(report: Report) -> list[str]:
    """The verdict as lines for people."""
    verdict = report.verdict
    dealt = ", ".join(f"{count} {name}" for name, count in sorted(report.faults.items())) or "none"
    lines = [
        f"{verdict.turns} turns of {verdict.sessions} sessions in {report.seconds:.0f} s; {verdict.runs} runs",
        f"faults: {sum(report.faults.values())} ({dealt})",
        f"recovery after kill -9: {report.after_kill}",
        f"recovery after SIGTERM: {report.after_term}",
    ]
    lines += [f"BROKEN  {problem}" for problem in verdict.problems[:20]]
    if len(verdict.problems) > 20:
        lines.append(f"and {len(verdict.problems) - 20} more")
    if verdict.kept:
        lines.append("kept: nothing lost, each turn committed once, in order, one live lease a session, state unbroken")
    return lines
