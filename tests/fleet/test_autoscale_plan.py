"""How many workers the work asks for."""

from __future__ import annotations

import pytest

from fleet.autoscale import plan


@pytest.mark.parametrize(
    ("claimable", "running", "low", "high", "answer"),
    [
        (0, 0, 0, 100, (0, "idle")),
        (1, 0, 0, 100, (1, "backlog")),
        (2, 1, 0, 100, (2, "backlog")),
        (1000, 0, 0, 100, (100, "at_max")),
        (0, 0, 3, 100, (3, "at_min")),
        (200, 0, 0, 100, (100, "backlog")),
    ],
)
def test_a_slot_for_each_turn_that_runs_or_could(
    claimable: int, running: int, low: int, high: int, answer: tuple[int, str]
) -> None:
    assert plan(claimable=claimable, running=running, capacity=2, low=low, high=high) == answer
