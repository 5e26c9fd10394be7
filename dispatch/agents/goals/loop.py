"""The loop: the agent runs, its result is judged, the iteration is committed, until the goal is reached."""

from __future__ import annotations

import inspect
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dispatch.agents.clean import clean_json, clean_text, stored_result
from dispatch.agents.context import TurnContext
from dispatch.agents.control import GoalMissed, LeftOff, Result, Snooze
from dispatch.agents.goals.command import ValidationNotRun
from dispatch.agents.goals.validation import GRACE_S, CheckNotHere, Judge, Validator, Verdict
from dispatch.agents.goals.view import Goal
from dispatch.agents.goals.ways import InThread, OnLoop, Way, at_once
from dispatch.agents.registry import COMMAND_SETTLE_S, RegisteredAgent
from dispatch.agents.runner import Stop
from dispatch.goal_ports import GoalRecord, GoalStore, IterationDone
from dispatch.json_text import json_size
from dispatch.outcomes import MAX_STATE_BYTES
from dispatch.states import ErrorCode

EXCERPT_BYTES = 2048
ELSEWHERE_S = 2.0  # between two claims of a goal whose check the claiming worker lacks

log = logging.getLogger("dispatch.goals")


@dataclass(frozen=True, kw_only=True)
class Loops:
    """Puts loops around agents: what a goal's agent is to its worker."""

    goals: GoalStore
    validator: Validator

    def around(self, agent: RegisteredAgent) -> RegisteredAgent:
        """An agent of the same rules; its time limit holds for each iteration anew."""

        def run(turn: TurnContext) -> Any:
            return at_once(_Loop(self, agent, turn, InThread(turn)).run())

        async def arun(turn: TurnContext) -> Any:
            return await _Loop(self, agent, turn, OnLoop(turn)).run()

        grace_s = max(agent.stop_grace_s, GRACE_S + COMMAND_SETTLE_S)  # a validation may have to be ended too
        return replace(agent, fn=arun if agent.is_async else run, timeout_s=None, stop_grace_s=grace_s)


class _Loop:
    """One run of a goal's turn."""

    def __init__(self, loops: Loops, agent: RegisteredAgent, turn: TurnContext, way: Way) -> None:
        self._goals, self._validator = loops.goals, loops.validator
        self._agent, self._turn, self._way = agent, turn, way

    async def run(self) -> Any:
        """The result that was validated. Raise GoalMissed, LeftOff, and whatever the agent raises."""
        goal: GoalRecord = await self._way.store(self._goals.load)
        if goal.state is not None:
            self._turn.state = goal.state
        if goal.passed:
            return goal.last_result  # a crash came between its last iteration and its end
        judge = await self._judge(goal)
        while True:
            _refuse_spent(goal)
            begun = time.monotonic()
            value, verdict = await self._iterate(goal, judge)
            done = self._done(goal, value, verdict, time.monotonic() - begun)
            pausing = await self._way.store(self._goals.commit, done)
            self._turn.limits = {}
            self._turn.count_anew()
            if verdict.passed:
                return value
            goal = _after(goal, done)
            if pausing and goal.iteration < goal.max_iterations:
                raise LeftOff("the session is to pause")

    async def _judge(self, goal: GoalRecord) -> Judge:
        """Leave a goal whose check another worker has to that one."""
        try:
            return self._validator.judge(goal.validation, self._agent, self._turn, self._way)
        except CheckNotHere as missing:
            if not await self._way.store(self._goals.is_check_known, missing.name):
                raise ValidationNotRun(str(missing)) from None
            lease = self._turn.lease
            log.warning("goal left to a worker with its check", extra={"job_id": lease.job_id, "check": missing.name})
            raise Snooze(ELSEWHERE_S) from None

    async def _iterate(self, goal: GoalRecord, judge: Judge) -> tuple[Any, Verdict]:
        turn = self._turn
        turn.raise_if_cancelled()
        directory = await self._way.blocking(self._validator.directory, goal.validation, self._agent, turn)
        turn.enter(_view(goal, directory), self._limits(goal))
        value = await self._way.agent(self._agent.fn)
        if inspect.iscoroutine(value):
            value.close()
            raise TypeError("the agent returned an awaitable; declare it with async def")
        turn.raise_if_cancelled()
        turn.limits = {why: at for why, at in turn.limits.items() if why != Stop.TIMEOUT}
        verdict = await judge(value.value if isinstance(value, Result) else value)
        turn.raise_if_cancelled()
        return value, verdict

    def _limits(self, goal: GoalRecord) -> Mapping[str, float]:
        now, limits = time.monotonic(), dict[str, float]()
        if self._agent.timeout_s is not None:
            limits[Stop.TIMEOUT] = now + self._agent.timeout_s
        if goal.max_seconds is not None:
            limits[Stop.BUDGET] = now + goal.max_seconds - goal.spent_s
        return limits

    def _done(self, goal: GoalRecord, value: Any, verdict: Verdict, seconds: float) -> IterationDone:
        result = stored_result(value.value if isinstance(value, Result) else value)
        return IterationDone(
            iteration=goal.iteration + 1,
            result=result,
            excerpt=clean_text(
                result if isinstance(result, str) else json.dumps(result, ensure_ascii=False), EXCERPT_BYTES
            ),
            state=_state(self._turn.state),
            validation=verdict.as_json(),
            passed=verdict.passed,
            seconds=seconds,
        )


def _view(goal: GoalRecord, directory: Path | None) -> Goal:
    return Goal(
        objective=goal.objective,
        constraints=goal.constraints,
        iteration=goal.iteration + 1,
        max_iterations=goal.max_iterations,
        last_validation=goal.last_validation,
        last_result=goal.last_result,
        directory=directory,
    )


def _after(goal: GoalRecord, done: IterationDone) -> GoalRecord:
    return replace(
        goal,
        iteration=done.iteration,
        last_validation=done.validation,
        last_result=done.result,
        state=done.state,
        spent_s=goal.spent_s + done.seconds,
    )


def _refuse_spent(goal: GoalRecord) -> None:
    """Raise GoalMissed when no iteration, or no time, is left."""
    output = str((goal.last_validation or {}).get("output", ""))
    why = f": {output[-1000:]}" if output else ""
    if goal.iteration >= goal.max_iterations:
        raise GoalMissed(
            ErrorCode.NOT_VALIDATED, f"the last of {goal.max_iterations} iterations did not pass its validation{why}"
        )
    if goal.max_seconds is not None and goal.spent_s >= goal.max_seconds:
        raise GoalMissed(
            ErrorCode.BUDGET_EXCEEDED,
            f"max_seconds, {goal.max_seconds:g}, are used up after iteration {goal.iteration}{why}",
        )


def _state(value: Any) -> dict[str, Any]:
    """The session's state as it is kept between iterations. Raise GoalMissed for one that is never stored."""
    state, _ = clean_json(value, limit=None)
    if not isinstance(state, dict):
        raise TypeError("the session state is not an object")
    size = json_size(state)
    if size > MAX_STATE_BYTES:
        raise GoalMissed(
            ErrorCode.AGENT_ERROR, f"the session state has {size} bytes, at most {MAX_STATE_BYTES} are kept"
        )
    return state
