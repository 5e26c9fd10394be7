"""What a dispatch says of its goal, held against what can be validated in this fleet."""

from __future__ import annotations

from typing import Any

from dispatch import states, wiring
from dispatch.errors import Invalid
from dispatch.models import KnownCheck
from dispatch.specs import DispatchSpec


def goal_of(spec: DispatchSpec) -> dict[str, Any] | None:
    """The goal to admit; None for other kinds. Raise Invalid for a validation that is allowed or known nowhere."""
    if spec.kind != states.GOAL_LOOP:
        return None
    match spec.validation:
        case {"command": [str(program), *_]}:
            _refuse_disallowed(program)
        case {"check": str(name)}:
            _refuse_unknown(name)
    return {
        "objective": spec.objective or spec.task,
        "validation": spec.validation,
        "max_iterations": spec.max_iterations,
        "constraints": spec.constraints,
    }


def _refuse_disallowed(program: str) -> None:
    allowed = wiring.config().agent_validation_commands
    if program not in allowed:
        right = f"must begin with one of AGENT_VALIDATION_COMMANDS: {', '.join(allowed)}"
        fields = {"validation.command": right if allowed else "is not possible: AGENT_VALIDATION_COMMANDS is empty"}
        raise Invalid("the validation's command is not allowed", fields=fields)


def _refuse_unknown(name: str) -> None:
    if name not in wiring.checks() and not KnownCheck.objects.filter(name=name).exists():
        raise Invalid(
            f"no check named {name} is known",
            fields={"validation.check": "must be a check of this configuration or one that a worker has announced"},
        )
