"""What a goal loop reads and writes of its goal: plain records, and the Protocol of who keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from dispatch.ports import Lease


@dataclass(frozen=True, kw_only=True, slots=True)
class GoalRecord:
    """A goal as its last committed iteration left it; before the first one `iteration` is 0. Times in seconds."""

    objective: str
    validation: dict[str, Any] | None
    constraints: dict[str, Any] | list[str] | None
    iteration: int
    max_iterations: int
    last_validation: dict[str, Any] | None = None
    last_result: Any = None
    state: dict[str, Any] | None = None  # the session's, as that iteration left it
    passed: bool = False
    spent_s: float = 0.0

    @property
    def max_seconds(self) -> float | None:
        """What the whole loop may take; None: no bound."""
        return self.constraints.get("max_seconds") if isinstance(self.constraints, dict) else None


@dataclass(frozen=True, kw_only=True, slots=True)
class IterationDone:
    """An iteration that was judged. Its values are clean JSON; `seconds` is what agent and validation took."""

    iteration: int
    result: Any
    excerpt: str
    state: dict[str, Any]
    validation: dict[str, Any]
    passed: bool
    seconds: float


class GoalStore(Protocol):
    """The durable side of a goal loop."""

    def load(self, lease: Lease) -> GoalRecord: ...
    def is_check_known(self, lease: Lease, name: str) -> bool:
        """Whether a worker has announced this check lately."""
        ...

    def commit(self, lease: Lease, done: IterationDone) -> bool:
        """Write an iteration under the fence and count attempts anew; answers whether the session shall pause.

        Raises LeaseLost when the lease is not held, or the iteration is not the next one.
        """
        ...
