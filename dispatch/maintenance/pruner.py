"""Deletes what retention calls old, in small batches, each a transaction of its own.

A pass goes once over everything, oldest first. It is cut into rounds, so that the other duties of the process are not
kept waiting, and it rests after each batch for as long as that took, so that others get at the store's locks.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dispatch.authority import WorkAuthority
from dispatch.authority.removal import Removed
from dispatch.authority.store import retry_deadlock
from dispatch.maintenance.aged import AgedTable, aged_rows, remove_aged
from dispatch.maintenance.retention import Policy, jobs_left, old_jobs, old_sessions

ONE_WRITER_S, MANY_WRITERS_S = 0.02, 0.25  # what a batch should take: where a store has one writer, claims wait for it
SMALLEST, LARGEST = 10, 500  # jobs or sessions in one
ROUND_S = 1.0  # rests included
PASS_PERIOD_S = 300.0


class Pruner:
    """`allowed` is asked inside each transaction: false, and nothing is deleted in it."""

    def __init__(
        self,
        authority: WorkAuthority,
        *,
        policy: Policy,
        tables: Sequence[AgedTable],
        allowed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._removal = authority.removal
        self._policy = policy
        self._tables = tables
        self._allowed = allowed
        self._pass: Iterator[Removed] | None = None
        self._next_pass = 0.0
        self._size = SMALLEST
        self._batch_s = MANY_WRITERS_S if authority.transport.capabilities.cross_host else ONE_WRITER_S

    def run_round(self) -> int:
        """Go on with the pass for about a second, or begin one when it is time; answers how many rows went."""
        if self._pass is None and time.monotonic() < self._next_pass:
            return 0
        current, self._pass = self._pass or self.run_pass(), None  # one that fails is not gone on with
        end, rows = time.monotonic() + ROUND_S, 0
        for removed in current:
            rows += removed.total()
            if time.monotonic() >= end:
                self._pass = current
                return rows
        self._next_pass = time.monotonic() + PASS_PERIOD_S
        return rows

    def run_pass(self) -> Iterator[Removed]:
        """Once over everything; {table: rows} after each batch."""
        for batch in self._batches():
            began = time.monotonic()
            removed = retry_deadlock(batch)
            took = time.monotonic() - began
            self._size = max(SMALLEST, self._size // 2) if took > self._batch_s else min(LARGEST, self._size * 2)
            yield removed
            time.sleep(min(1.0, took))

    def _batches(self) -> Iterator[Callable[[], Removed]]:
        for jobs in old_jobs(self._policy):
            yield from self._jobs(jobs, self._policy.session_turns)
        for sessions in old_sessions(self._policy):
            for jobs in jobs_left(list(sessions)):
                yield from self._jobs(jobs, 0)
            for part in self._parts(sessions):
                yield lambda part=part: self._removal.sessions(part, allowed=self._allowed)  # type: ignore[misc]
        for table in self._tables:
            for keys in aged_rows(table):
                yield lambda table=table, keys=keys: remove_aged(table, keys, allowed=self._allowed)  # type: ignore[misc]

    def _jobs(self, jobs: dict[int, int], keep_turns: int) -> Iterator[Callable[[], Removed]]:
        for part in self._parts(jobs):
            yield lambda part=part: self._removal.jobs(part, keep_turns=keep_turns, allowed=self._allowed)  # type: ignore[misc]

    def _parts(self, rows: dict[int, Any]) -> Iterator[dict[int, Any]]:
        pairs = sorted(rows.items())
        while pairs:
            part, pairs = pairs[: self._size], pairs[self._size :]
            yield dict(part)


def prune(pruner: Pruner) -> Removed:
    """A whole pass at once: {table: rows}."""
    removed: Removed = Counter()
    for batch in pruner.run_pass():
        removed += batch
    return removed
