"""When a periodic duty counts as stale."""

from __future__ import annotations

import pytest

from fleet.evidence import stale_ticks
from fleet.selectors import TickAge


def tick(success_s: float | None, *, overdue_s: float = -3.0, period_s: float | None = 5.0) -> TickAge:
    return TickAge(name="rescue", period_s=period_s, overdue_s=overdue_s, success_s=success_s)


@pytest.mark.parametrize(
    ("age", "alive_s", "stale"),
    [
        (tick(4.0), 1000.0, False),
        (tick(14.0), 1000.0, False),
        (tick(16.0), 1000.0, True),  # three periods of 5 s
        (tick(16.0), 10.0, False),  # the worker has only just come: it could not have done it yet
        (tick(None, overdue_s=100.0, period_s=None), 1000.0, True),
        (tick(4.0, overdue_s=60.0), 1000.0, True),  # due long ago and not begun
        (tick(3000.0, period_s=3600.0), 100_000.0, False),  # an hourly duty is not late after fifty minutes
        (tick(20_000.0, period_s=3600.0), 100_000.0, True),
    ],
)
def test_a_tick_is_stale_after_three_periods_of_a_living_worker(age: TickAge, alive_s: float, stale: bool) -> None:
    assert stale_ticks([age], alive_s=alive_s, tick_s=5) == (("stale_tick:rescue",) if stale else ())


def test_no_tick_at_all_is_a_fault_once_a_worker_has_lived_long_enough() -> None:
    assert stale_ticks([], alive_s=10, tick_s=5) == ()
    assert stale_ticks([], alive_s=60, tick_s=5) == ("ticks_never_ran",)
