"""Goal loops in memory: a store whose lease can be lost, and runs on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dispatch.agents.checks import Checks
from dispatch.agents.goals.loop import Loops
from dispatch.agents.goals.validation import Validator
from dispatch.agents.registry import RegisteredAgent
from dispatch.agents.runner import TurnRun
from dispatch.errors import LeaseLost
from dispatch.goal_ports import GoalRecord, GoalStore, IterationDone
from dispatch.outcomes import Outcome
from dispatch.ports import Lease
from dispatch.states import GOAL_LOOP
from tests.dispatch.agents.command.commands import ground
from tests.dispatch.agents.turn_store import MemoryTurnStore, lease


@dataclass
class MemoryGoals(GoalStore):
    """Keeps one goal and what was committed of it."""

    record: GoalRecord
    committed: list[IterationDone] = field(default_factory=list)
    pause_at: int = 0
    lost: bool = False
    known_checks: tuple[str, ...] = ()

    def load(self, lease: Lease) -> GoalRecord:
        return self.record

    def is_check_known(self, lease: Lease, name: str) -> bool:
        return name in self.known_checks

    def commit(self, lease: Lease, done: IterationDone) -> bool:
        if self.lost:
            raise LeaseLost
        assert done.iteration == self.record.iteration + 1
        self.committed.append(done)
        self.record = replace(
            self.record,
            iteration=done.iteration,
            last_validation=done.validation,
            last_result=done.result,
            state=done.state,
            passed=done.passed,
            spent_s=self.record.spent_s + done.seconds,
        )
        return done.iteration == self.pause_at

    def judged(self) -> list[bool]:
        return [done.passed for done in self.committed]


def goals(validation: dict[str, Any] | None = None, **more: Any) -> MemoryGoals:
    facts = {"objective": "reach it", "constraints": None, "iteration": 0, "max_iterations": 5}
    return MemoryGoals(GoalRecord(validation=validation, **{**facts, **more}))


def looped(
    fn: Callable[..., Any],
    store: MemoryGoals,
    place: Path,
    *,
    allowed: tuple[str, ...] = (),
    checks: dict[str, Callable[..., Any]] | None = None,
    agent: RegisteredAgent | None = None,
    turns: MemoryTurnStore | None = None,
    **changes: Any,
) -> TurnRun:
    """A run of a goal's turn; `agent` instead of a function, `changes` of the lease."""
    known = Checks()
    for name, check in (checks or {}).items():
        known.add(name, check)
    loops = Loops(goals=store, validator=Validator(ground=ground(place), allowed=allowed, checks=known))
    plain = agent or RegisteredAgent(name="tested", fn=fn, is_async=asyncio.iscoroutinefunction(fn))
    return TurnRun(lease(kind=GOAL_LOOP, **changes), loops.around(plain), turns or MemoryTurnStore())


def ended(run: TurnRun) -> Outcome:
    return asyncio.run(run.run_async()) if run.agent.is_async else run.run_sync()


def both(fn: Callable[..., Any]) -> list[Callable[..., Any]]:
    """A function of a turn as a sync and as an async agent."""

    async def afn(turn: Any) -> Any:
        await asyncio.sleep(0)
        return fn(turn)

    return [fn, afn]
