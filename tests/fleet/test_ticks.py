"""When a periodic duty counts as stale."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from dispatch.models import Tick
from fleet.evidence import stale_ticks
from fleet.selectors import TickAge, tick_ages


def age(undone_s: float | None, *, overdue_s: float = -3.0, period_s: float = 5.0) -> TickAge:
    return TickAge(name="rescue", period_s=period_s, overdue_s=overdue_s, undone_s=undone_s)


@pytest.mark.parametrize(
    ("tick", "alive_s", "stale"),
    [
        (age(4.0), 1000.0, False),
        (age(14.0), 1000.0, False),
        (age(16.0), 1000.0, True),  # three periods of 5 s
        (age(16.0), 10.0, False),  # the worker has only just come: it could not have done it yet
        (age(None, overdue_s=100.0, period_s=0.0), 1000.0, True),
        (age(4.0, overdue_s=60.0), 1000.0, True),  # due long ago and not begun
        (age(3000.0, period_s=3600.0), 100_000.0, False),  # an hourly duty is not late after fifty minutes
        (age(20_000.0, period_s=3600.0), 100_000.0, True),
    ],
)
def test_a_tick_is_stale_after_three_periods_of_a_living_worker(tick: TickAge, alive_s: float, stale: bool) -> None:
    assert stale_ticks([tick], alive_s=alive_s, tick_s=5) == (("stale_tick:rescue",) if stale else ())


def test_no_tick_at_all_is_a_fault_once_a_worker_has_lived_long_enough() -> None:
    assert stale_ticks([], alive_s=10, tick_s=5) == ()
    assert stale_ticks([], alive_s=60, tick_s=5) == ("ticks_never_ran",)


@pytest.mark.django_db
@pytest.mark.store
@pytest.mark.parametrize(
    ("started_s", "success_s", "error", "stale"),
    [
        (7, 6, "", False),
        (102, 99, "", False),  # a round of 3 s is done once a minute
        (6, 110, "", False),  # a long round is under way
        (6, 110, "OperationalError", True),  # it begins again and again, and fails
        (110, 200, "", True),  # begun, and never ended
        (6, None, "", False),
        (6, None, "OperationalError", True),
    ],
)
def test_a_round_that_takes_long_is_not_late_and_one_that_fails_is(
    started_s: float, success_s: float | None, error: str, stale: bool
) -> None:
    now = timezone.now()
    started = now - timedelta(seconds=started_s)
    Tick.objects.create(
        name="republish",
        due_at=started + timedelta(seconds=5),
        last_started_at=started,
        last_success_at=None if success_s is None else now - timedelta(seconds=success_s),
        last_error=error,
    )
    assert bool(stale_ticks(tick_ages(), alive_s=10_000, tick_s=5)) is stale
