"""A TurnStore in memory, whose lease can be taken away, with leases and runs on it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from dispatch.agents import TurnContext
from dispatch.agents.registry import RegisteredAgent
from dispatch.agents.runner import TurnRun
from dispatch.errors import LeaseLost
from dispatch.outcomes import Outcome
from dispatch.ports import Lease, TurnStore
from dispatch.spending import Budget, ModelSpend, Spent

DEADLINE = datetime(2026, 1, 2, tzinfo=UTC) + timedelta(hours=1)


def lease(**changes: Any) -> Lease:
    """A lease on a session's second turn; `changes` replace its fields."""
    facts: dict[str, Any] = {
        "item_id": 7,
        "epoch": 1,
        "owner": "token",
        "job_id": "orch-" + "a" * 32,
        "tenant": "t1",
        "session_pk": 3,
        "session_id": "s-1",
        "session_seq": 4,
        "turn_number": 2,
        "kind": "orchestrator_task",
        "agent_name": "tested",
        "attempt": 1,
        "max_attempts": 3,
        "on_worker_lost": "retry",
        "deadline": None,
        "task": "do it",
        "payload": {"n": 1},
        "state": {"seen": [1]},
    }
    return Lease(**{**facts, **changes})


@dataclass
class MemoryTurnStore(TurnStore):
    """Keeps what a turn writes; refuses any epoch but the current one. Steps outlive an attempt."""

    current_epoch: int = 1
    turns: list[dict[str, Any]] = field(default_factory=list)
    answer: str | None = None
    checkpoints: list[Any] = field(default_factory=list)
    steps: dict[str, Any] = field(default_factory=dict)
    chunks: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    bodies: dict[str, dict[str, Any]] = field(default_factory=dict)
    begun: int = 0  # requests to models that were not refused
    spends: list[ModelSpend] = field(default_factory=list)
    history_reads: int = 0
    threads: set[int] = field(default_factory=set)
    held: set[int] = field(default_factory=set)

    def _opened(self) -> None:
        self.threads.add(threading.get_ident())
        self.held.add(threading.get_ident())

    def release(self) -> None:
        self.held.discard(threading.get_ident())

    def _fenced(self, lease: Lease) -> None:
        self._opened()
        if lease.epoch != self.current_epoch:
            raise LeaseLost()

    def history(self, lease: Lease) -> list[dict[str, Any]]:
        self._opened()
        self.history_reads += 1
        return list(self.turns)

    def checkpoint(self, lease: Lease, value: Any) -> None:
        self._fenced(lease)
        self.checkpoints.append(value)

    def step_load(self, lease: Lease, name: str) -> tuple[bool, Any]:
        self._fenced(lease)
        return name in self.steps, self.steps.get(name)

    def step_save(self, lease: Lease, name: str, result: Any) -> Any:
        self._fenced(lease)
        return self.steps.setdefault(name, result)

    def emit(self, lease: Lease, kind: str, data: dict[str, Any]) -> None:
        self._fenced(lease)
        self.chunks.append((kind, data))

    def reply(self, lease: Lease) -> str | None:
        self._opened()
        return self.answer

    def children(self, lease: Lease) -> list[dict[str, Any]]:
        self._opened()
        return list(self.jobs.values())

    def dispatch_child(self, lease: Lease, job_key: str, body: dict[str, Any]) -> str:
        self._fenced(lease)
        job_id = f"orch-{job_key}"
        self.bodies[job_key] = body
        session_id = body.get("session_id") or job_id
        fresh = {"job_id": job_id, "session_id": session_id, "status": "pending", "result": None, "error": None}
        self.jobs.setdefault(job_id, fresh)
        return job_id

    def model_begins(self, lease: Lease, model: str, budget: Budget) -> tuple[str, int, int] | None:
        self._fenced(lease)
        tokens = sum(one.input_tokens + one.output_tokens for one in self.spends)
        spent = Spent(requests=self.begun, tokens=tokens, session_tokens=tokens)
        used_up = spent.exceeded(budget)
        self.begun += used_up is None
        return used_up

    def model_ended(self, lease: Lease, model: str, spend: ModelSpend) -> None:
        self._fenced(lease)
        self.begun -= spend.refused
        self.spends.append(spend)

    def end(self, job_id: str, status: str, result: Any = None) -> None:
        self.jobs[job_id].update(status=status, result=result)


def run_of(fn: Callable[..., Any], store: MemoryTurnStore | None = None, **changes: Any) -> TurnRun:
    agent = RegisteredAgent(name="tested", fn=fn, is_async=asyncio.iscoroutinefunction(fn))
    return TurnRun(lease(**changes), agent, store or MemoryTurnStore())


def ended(fn: Callable[..., Any], store: MemoryTurnStore | None = None, **changes: Any) -> Outcome:
    return run_of(fn, store, **changes).run_sync()


def raising(error: BaseException) -> Callable[[TurnContext], Any]:
    def agent(turn: TurnContext) -> Any:
        turn.state["changed"] = True
        raise error

    return agent


def araising(error: BaseException) -> Callable[[TurnContext], Any]:
    async def agent(turn: TurnContext) -> Any:
        await asyncio.sleep(0)
        raise error

    return agent
