"""What is put into the queue, by the product's own services."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from dispatch import limiting, services
from dispatch.access import Caller
from dispatch.specs import DispatchSpec

CALLER = Caller(tenant="bench", name="bench", kind="system", scopes=frozenset({"dispatch"}))
OPERATOR = Caller(tenant="bench", name="bench", kind="system", scopes=frozenset({"operate"}), platform=True)
BULK = 1000


def body(session: str, agent: str = "noop", **fields: Any) -> dict[str, Any]:
    return {"task": "measure", "agent_name": agent, "session_id": session, **fields}


def even(jobs: int, sessions: int) -> list[dict[str, Any]]:
    """No-op turns, round the sessions."""
    return [body(f"s-{number % sessions}") for number in range(jobs)]


def mixed(jobs: int, hot: int, sessions: int) -> list[dict[str, Any]]:
    """`hot` of the turns belong to one session, the others to the rest; shuffled, the same way each time."""
    names = ["hot"] * hot + [f"s-{number % (sessions - 1)}" for number in range(jobs - hot)]
    random.Random(7).shuffle(names)
    return [body(name) for name in names]


def dispatch_one(fields: dict[str, Any]) -> None:
    """Returns when the job is durable."""
    services.job_dispatch(caller=CALLER, spec=DispatchSpec.parse(fields))


def dispatch_all(bodies: list[dict[str, Any]]) -> None:
    """In lists of 1,000. Raises when one of the answers is an error."""
    for part in _parts(bodies):
        answers = services.job_dispatch_many(caller=CALLER, specs=[DispatchSpec.parse(fields) for fields in part])
        refused = [answer for answer in answers if answer.get("status") == "error"]
        if refused:
            raise RuntimeError(f"refused: {refused[0]}")


def limit(agent: str, *, max_running: int, rate_per_s: float) -> None:
    """Set a cap and a rate of one agent."""
    limits = {"max_running": max_running, "rate_per_s": rate_per_s, "burst": None}
    limiting.limit_set(caller=OPERATOR, scope="agent", name=agent, reason="a benchmark", **limits)


def unlimit(agent: str) -> None:
    limiting.limit_clear(caller=OPERATOR, scope="agent", name=agent, reason="a benchmark")


def _parts(bodies: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    return (bodies[at : at + BULK] for at in range(0, len(bodies), BULK))
