"""Capacity that follows the work, within its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from dispatch.worker.capacity import SHRINK_S, Capacity, ProcessPressure, auto_capacity, free_memory


@dataclass
class Host:
    """The clock and the pressure, by hand."""

    now: float = 0.0
    pressed: bool = False

    def capacity(self, least: int, most: int) -> Capacity:
        return Capacity(least, most, pressed=lambda: self.pressed, clock=lambda: self.now)


def fill(capacity: Capacity) -> None:
    """A claim that got all it asked for and left no slot free."""
    capacity.claimed(1, wanted=1, taken=capacity.current)


def test_it_doubles_while_claims_fill_it_up_to_its_bound() -> None:
    capacity = Host().capacity(1, 6)
    seen = []
    for _ in range(5):
        fill(capacity)
        seen.append(capacity.current)
    assert seen == [2, 4, 6, 6, 6]


@pytest.mark.parametrize(("got", "wanted", "taken"), [(1, 2, 1), (0, 2, 0), (1, 1, 1)])
def test_it_stays_when_a_claim_left_a_slot_free(got: int, wanted: int, taken: int) -> None:
    capacity = Host().capacity(2, 8)
    capacity.claimed(got, wanted=wanted, taken=taken)
    assert capacity.current == 2


def test_without_a_greater_bound_it_never_moves() -> None:
    host = Host()
    capacity = host.capacity(3, 3)
    fill(capacity)
    host.now, host.pressed = 10 * SHRINK_S, True
    capacity.rest(0)
    assert capacity.current == 3


def test_what_stood_empty_for_a_while_is_given_up_and_what_was_used_stays() -> None:
    host = Host()
    capacity = host.capacity(1, 16)
    for _ in range(4):
        fill(capacity)
    host.now = SHRINK_S - 1
    capacity.rest(16)
    assert capacity.current == 16, "too soon"
    host.now = 2 * SHRINK_S
    capacity.rest(5)
    assert capacity.current == 16, "all of it was used in this time"
    host.now = 3 * SHRINK_S
    capacity.rest(5)
    assert capacity.current == 5
    host.now = 5 * SHRINK_S
    capacity.rest(0)
    host.now = 7 * SHRINK_S
    capacity.rest(0)
    assert capacity.current == 1


def test_under_pressure_it_does_not_grow_and_gives_up_a_quarter_at_a_time() -> None:
    host = Host()
    capacity = host.capacity(2, 16)
    for _ in range(3):
        fill(capacity)
    host.pressed = True
    fill(capacity)
    assert capacity.current == 16
    for turn, left in enumerate((12, 9, 7), 1):
        host.now = turn * SHRINK_S
        capacity.rest(16)
        assert capacity.current == left
    capacity.claimed(7, wanted=7, taken=7)
    assert capacity.current == 7


def test_the_free_memory_of_the_host_is_a_share_and_unknown_where_it_is_not_told(tmp_path: Path) -> None:
    told = tmp_path / "meminfo"
    told.write_text("MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  250 kB\n")
    assert free_memory(told) == 0.25
    told.write_text("nothing of the kind\n")
    assert free_memory(told) is None
    assert free_memory(tmp_path / "none") is None


def test_a_process_that_waits_is_not_pressed() -> None:
    assert ProcessPressure()() is False
    assert auto_capacity() >= 32
