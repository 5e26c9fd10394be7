"""Is the goal reached? By a command, by a registered check, by a JSON schema, or by the agent's own return."""

from __future__ import annotations

import inspect
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dispatch.agents.checks import Checks
from dispatch.agents.clean import clean_json, clean_text
from dispatch.agents.command.agent import CommandAgent
from dispatch.agents.command.process import Plan
from dispatch.agents.command.spec import CommandSpec, Ground
from dispatch.agents.command.surroundings import environment, leave, session_directory
from dispatch.agents.context import TurnContext
from dispatch.agents.goals.command import OUTPUT_BYTES, Ended, ValidationNotRun, run_command
from dispatch.agents.goals.schema_check import UNFIT
from dispatch.agents.goals.ways import Way
from dispatch.agents.registry import RegisteredAgent

TIMEOUT_S = 300.0  # of a command that names no time of its own
SCHEMA_TIMEOUT_S = 10.0
GRACE_S = 2.0  # between SIGTERM and SIGKILL
SCHEMA_CHECK = Path(__file__).with_name("schema_check.py")


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What a validation said. `exit_code`: of a command that ended by itself."""

    by: str  # command | check | schema | none
    passed: bool
    output: str = ""
    exit_code: int | None = None
    timed_out: bool = False
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


class CheckNotHere(ValidationNotRun):
    """Another worker may have it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"this worker has no check named {name}; see AGENT_MODULES")
        self.name = name


Judge = Callable[[Any], Awaitable[Verdict]]  # takes what the agent returned


class Validator:
    """Makes the judge of a goal. Raise ValidationNotRun for a validation that this worker cannot do."""

    def __init__(self, *, ground: Ground, allowed: tuple[str, ...], checks: Checks) -> None:
        self._ground, self._allowed, self._checks = ground, allowed, checks

    def judge(self, rule: Mapping[str, Any] | None, agent: RegisteredAgent, turn: TurnContext, way: Way) -> Judge:
        match rule:
            case None:
                return _content
            case {"command": list(argv)}:
                return self._by_command(argv, float(rule.get("timeout_s", TIMEOUT_S)), agent, turn, way)
            case {"check": str(name)}:
                return self._by_check(name, turn, way)
            case {"schema": dict(schema)}:
                return _by_schema(schema, turn, way)
        raise ValidationNotRun("the goal's validation is of no known kind")

    def directory(self, rule: Mapping[str, Any] | None, agent: RegisteredAgent, turn: TurnContext) -> Path | None:
        """Where the goal's command runs: in the directory of the agent's own command, else in the session's."""
        if rule is None or "command" not in rule:
            return None
        own = agent.fn.spec.cwd if isinstance(agent.fn, CommandAgent) else None
        try:
            return own or session_directory(self._ground.workdirs, turn.lease)
        except OSError as error:  # its path is nobody's business
            raise ValidationNotRun(f"the session's directory cannot be made: {error.strerror}") from None

    def _by_command(
        self, argv: list[str], timeout_s: float, agent: RegisteredAgent, turn: TurnContext, way: Way
    ) -> Judge:
        if argv[0] not in self._allowed:
            raise ValidationNotRun(f"this worker's AGENT_VALIDATION_COMMANDS does not allow {argv[0][:200]}")
        rule = {"command": argv}
        alone = not (isinstance(agent.fn, CommandAgent) and agent.fn.spec.cwd)

        def plan(result: Any) -> Plan:
            cwd = self.directory(rule, agent, turn)
            assert turn.goal is not None
            assert cwd is not None
            said = {**turn.goal.as_json(), "result": clean_json(result)[0]}
            return Plan(
                argv=argv,
                env=environment(
                    CommandSpec(argv=tuple(argv), stdin="json"),
                    turn.lease,
                    key=turn.idempotency_key,
                    reply=None,
                    traceparent=turn.traceparent,
                    worker=os.environ,
                    always=self._ground.set_always,
                    goal=turn.goal,
                ),
                cwd=cwd,
                alone=alone,
                stdin=json.dumps(said, ensure_ascii=False).encode("utf-8", "replace") + b"\n",
                grace_s=GRACE_S,
            )

        async def judge(result: Any) -> Verdict:
            made = await way.blocking(plan, result)
            begun = time.monotonic()
            ended = await way.looped(lambda: run_command(turn, made, timeout_s=timeout_s))
            if alone and not turn.lease_gone:
                leave(made.cwd)
            return _of_command("command", ended, time.monotonic() - begun)

        return judge

    def _by_check(self, name: str, turn: TurnContext, way: Way) -> Judge:
        fn = self._checks.get(name)
        if fn is None:
            raise CheckNotHere(name)

        async def judge(result: Any) -> Verdict:
            begun = time.monotonic()
            if inspect.iscoroutinefunction(fn):
                said = await way.looped(lambda: fn(turn, result))
            else:
                said = await way.blocking(fn, turn, result)
            if not isinstance(said, bool | str):
                raise TypeError(f"check {name} returned {type(said).__name__}, and not True, False or a text")
            output = clean_text(said, OUTPUT_BYTES) if isinstance(said, str) else ""
            return Verdict(by="check", passed=said is True, output=output, seconds=time.monotonic() - begun)

        return judge


async def _content(result: Any) -> Verdict:
    return Verdict(by="none", passed=True)


def _by_schema(schema: dict[str, Any], turn: TurnContext, way: Way) -> Judge:
    async def judge(result: Any) -> Verdict:
        begun = time.monotonic()
        plan = Plan(
            argv=[sys.executable, "-P", "-X", "utf8", str(SCHEMA_CHECK)],
            env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            cwd=Path("/"),
            alone=False,
            stdin=json.dumps({"schema": schema, "value": clean_json(result)[0]}).encode(),
            grace_s=0.0,
        )
        ended = await way.looped(lambda: run_command(turn, plan, timeout_s=SCHEMA_TIMEOUT_S))
        if ended.exit_code not in (None, 0, UNFIT):
            raise ValidationNotRun(f"the schema cannot be held against the result: {ended.output[-500:]}")
        return _of_command("schema", ended, time.monotonic() - begun)

    return judge


def _of_command(by: str, ended: Ended, seconds: float) -> Verdict:
    return Verdict(
        by=by,
        passed=ended.exit_code == 0,
        output=ended.output,
        exit_code=ended.exit_code if by == "command" else None,
        timed_out=ended.exit_code is None,
        seconds=seconds,
    )
