"""What an agent sees of its goal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Goal:
    """One iteration of a goal: `iteration` counts from 1, the `last_…` are those of the iteration before.

    `last_validation` has `passed`, `output` (why it did not pass) and more. `directory` is where a validation command
    runs, None for other validations.
    """

    objective: str
    constraints: dict[str, Any] | list[str] | None
    iteration: int
    max_iterations: int
    last_validation: dict[str, Any] | None = None
    last_result: Any = None
    directory: Path | None = None

    @property
    def feedback(self) -> str:
        """Why the last iteration was not enough; empty in the first one."""
        return str((self.last_validation or {}).get("output", ""))

    def as_json(self) -> dict[str, Any]:
        """What a command reads of it."""
        return {
            "objective": self.objective,
            "constraints": self.constraints,
            "iteration": self.iteration,
            "max_iterations": self.max_iterations,
            "last_validation": self.last_validation,
            "last_result": self.last_result,
        }

    def as_text(self) -> str:
        """All of it in words, as for a model."""
        parts = [self.objective, f"This is iteration {self.iteration} of at most {self.max_iterations}."]
        if self.constraints:
            parts.append(f"Constraints: {_text(self.constraints)}")
        if self.last_validation is not None:
            parts.append(f"The last iteration returned: {_text(self.last_result)}")
            parts.append(f"It did not pass the validation: {self.feedback or 'no reason was given'}")
        return "\n\n".join(parts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
