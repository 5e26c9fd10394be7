"""Runs a program of the client by hand: told what it asks for from a list, on a clock that only its pauses move."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from typing import Any

from dispatch.client.programs import Patience, Pause, Reply


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def patience(self, for_s: float = 60.0) -> Patience:
        return Patience(for_s=for_s, clock=lambda: self.now, jitter=lambda: 1.0)


class Hand:
    """`asked` has every step but the pauses, `paused` these; `told` is handed over in order."""

    def __init__(self, clock: Clock, told: Sequence[Any]) -> None:
        self._clock, self._told = clock, list(told)
        self.asked: list[Any] = []
        self.paused: list[float] = []

    def run(self, program: Generator[Any, Any, Any]) -> Any:
        answer: Any = None
        try:
            while True:
                step = program.send(answer)
                answer = None
                if isinstance(step, Pause):
                    self.paused.append(step.seconds)
                    self._clock.now += step.seconds
                    continue
                self.asked.append(step)
                if type(step).__name__ != "Tell":
                    answer = self._told.pop(0)
        except StopIteration as done:
            return done.value


def answered(body: Any, status: int = 200, retry_after: str | None = None) -> Reply:
    return Reply(status=status, body=json.dumps(body).encode(), retry_after=retry_after)


def refused(status: int, code: str, retry_after: str | None = None, **fields: str) -> Reply:
    body = {"status": "error", "code": code, "message": f"it is {code}", "fields": fields}
    return answered(body, status, retry_after)
