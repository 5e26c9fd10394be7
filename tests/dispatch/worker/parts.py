"""Parts of a worker for tests: slots over the memory turn store, listeners that remember, an authority by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dispatch.agents.registry import RegisteredAgent
from dispatch.agents.runner import TurnRun
from dispatch.ports import Authority, Fence, Lease, RenewResult, Serves, Settled, Settlement, StepResult
from dispatch.worker.settlement import Slot
from dispatch.worker_ports import WorkerEvents
from tests.dispatch.agents.turn_store import MemoryTurnStore, lease

WAIT_S = 10.0


def slot(
    fn: Callable[..., Any] = lambda turn: None,
    *,
    of: Lease | None = None,
    **agent: Any,
) -> Slot:
    """A slot whose run has not begun; `agent` are options of the agent."""
    registered = RegisteredAgent(name="tested", fn=fn, is_async=asyncio.iscoroutinefunction(fn), **agent)
    run = TurnRun(of or lease(), registered, MemoryTurnStore())
    return Slot(run=run, agent=registered, claimed_at=time.monotonic())


@dataclass
class Heard(WorkerEvents):
    """Remembers what was said, by job id."""

    said: list[tuple[str, str]] = field(default_factory=list)

    def claimed(self, lease: Lease) -> None:
        self.said.append(("claimed", lease.job_id))

    def ended(self, lease: Lease, outcome: str, run_s: float) -> None:
        self.said.append((f"ended {outcome}", lease.job_id))

    def settled(self, settled: Settled, lease: Lease) -> None:
        self.said.append((f"settled {settled.status}", lease.job_id))

    def refused(self, lease: Lease) -> None:
        self.said.append(("refused", lease.job_id))

    def lease_lost(self, lease: Lease) -> None:
        self.said.append(("lease lost", lease.job_id))

    def stuck(self, lease: Lease) -> None:
        self.said.append(("stuck", lease.job_id))

    def blind(self, error: Exception, seconds: float) -> None:
        self.said.append(("blind", type(error).__name__))

    def of(self, job_id: str) -> list[str]:
        return [what for what, about in self.said if about == job_id]


@dataclass
class ByHand(Authority):
    """Answers renewals with what a test has put here; remembers who was asked for."""

    renewed: list[list[Fence]] = field(default_factory=list)
    looked: list[list[Fence]] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    cancelled: dict[int, str] = field(default_factory=dict)
    away: bool = False
    recovered: int = 0

    def _answer(self, leases: Sequence[Fence]) -> RenewResult:
        if self.away:
            raise ConnectionError("away")
        ids = {fence[0] for fence in leases}
        asked = {pk: code for pk, code in self.cancelled.items() if pk in ids}
        return RenewResult(lost=sorted(self.lost & ids), cancelled=asked)

    def renew(self, *, ttl_s: float, leases: Sequence[Fence]) -> RenewResult:
        self.renewed.append(list(leases))
        return self._answer(leases)

    def cancels(self, *, leases: Sequence[Fence]) -> RenewResult:
        self.looked.append(list(leases))
        return self._answer(leases)

    def step(
        self, *, owner: str, ttl_s: float, settle: Sequence[Settlement], want: int, serves: Serves, cursor: str
    ) -> StepResult:
        if self.away:
            raise ConnectionError("away")
        return StepResult()

    def claim(self, job_id: str, *, owner: str, ttl_s: float, serves: Serves) -> Lease | str:
        return "unknown"

    def stopped(self, *, lease: Lease) -> None:
        """Nobody looks."""

    def recover(self) -> None:
        self.recovered += 1

    def release(self) -> None:
        """There is nothing to give back."""
