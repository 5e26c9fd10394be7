"""The agents and checks of goals that acceptance tests run; each iteration leaves journal lines."""

from __future__ import annotations

import os
import signal
from typing import Any

from dispatch.agents import TurnContext, agent, check
from tests.support import journal
from tests.support.journal_agents import begin, finish, line, sleep_on


def first_time(turn: TurnContext, what: str) -> int:
    """1 at the first call of this job with this word, 2 at the next."""
    path = f"{os.environ[journal.VARIABLE]}.{turn.job_id}.{what}"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, b".")
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


@agent("strive", max_attempts=2, backoff_base_s=0.1)
def strive(turn: TurnContext) -> dict[str, Any]:
    """One iteration: a durable step, payload.s seconds (deaf to its stop by payload.deaf), and death as often as
    payload.deaths says of this one."""
    goal = turn.goal
    assert goal is not None
    nonce = begin(turn)
    line("iteration", turn, nonce, iteration=goal.iteration, feedback=goal.feedback, last=goal.last_result)
    step = turn.step("effect", lambda: {"iteration": goal.iteration, "nonce": nonce})
    deaths = turn.payload.get("deaths", {}).get(str(goal.iteration), 0)
    if first_time(turn, str(goal.iteration)) <= deaths:
        os.kill(os.getpid(), signal.SIGKILL)

    def listen() -> None:
        if turn.cancelled and not turn.payload.get("deaf"):
            line("told", turn, nonce)
            turn.raise_if_cancelled()

    sleep_on(float(turn.payload.get("s", 0)), listen)
    return finish(turn, nonce, iteration=goal.iteration, step=step)


@check("enough")
def enough(turn: TurnContext, result: Any) -> bool | str:
    """Whether it is iteration payload.enough."""
    if result["iteration"] >= turn.payload["enough"]:
        return True
    return f"iteration {result['iteration']} is not enough"
