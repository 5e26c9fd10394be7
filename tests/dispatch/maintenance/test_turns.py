"""Which of many processes does a periodic duty, and what becomes of one whose process dies in it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dispatch.clock import store_now
from dispatch.maintenance.ticks import Duty, Ticks
from dispatch.models import Tick

pytestmark = [pytest.mark.django_db, pytest.mark.store]
PERIOD_S = 60.0


def done_by(*processes: str, heavy: bool = False) -> list[str]:
    """Let processes look one after the other; answers who did the duty."""
    done: list[str] = []
    for name in processes:

        def run(name: str = name) -> int:
            done.append(name)
            return 0

        duty = Duty(name="duty", run=run, period_s=PERIOD_S, heavy=heavy)
        Ticks(quick=[], duties=[duty], holder=name, tick_s=PERIOD_S).look()
    return done


def taken(ago_s: float, *, succeeded_ago_s: float | None) -> None:
    now = store_now()
    Tick.objects.create(
        name="duty",
        last_started_at=now - timedelta(seconds=ago_s),
        due_at=now + timedelta(seconds=PERIOD_S - ago_s),
        last_success_at=None if succeeded_ago_s is None else now - timedelta(seconds=succeeded_ago_s),
    )


def test_one_process_does_it_in_a_period() -> None:
    assert done_by("a", "b", "a") == ["a"]


@pytest.mark.parametrize(
    ("ago_s", "succeeded_ago_s", "heavy", "by"),
    [
        (31, None, False, ["a"]),
        (31, 91, False, ["a"]),  # it has succeeded before, and not this time
        (29, None, False, []),
        (31, 30, False, []),
        (31, None, True, []),  # it may take long: it is waited for
        (61, None, True, ["a"]),
    ],
)
def test_what_a_process_took_and_did_not_finish_goes_to_the_next_after_half_the_period(
    ago_s: float, succeeded_ago_s: float | None, heavy: bool, by: list[str]
) -> None:
    taken(ago_s, succeeded_ago_s=succeeded_ago_s)
    assert done_by("a", "b", heavy=heavy) == by
