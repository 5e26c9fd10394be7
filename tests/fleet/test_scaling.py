"""How many workers to want next: the target, and what keeps the answer from swinging."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.scaling import KEPT, Memory, Policy, Signals, decide, wanted_workers

CALM = Policy(deadband=0.0, stabilization_s=0.0)


def signals(claimable: int = 0, running: int = 0, *, current: int = 0, oldest_ready_s: float | None = None) -> Signals:
    return Signals(claimable=claimable, running=running, oldest_ready_s=oldest_ready_s, current=current)


def ask(work: Signals, memory: Memory | None = None, *, now: float = 1000.0, **policy: Any) -> tuple[int, str]:
    desired, reason, _ = decide(work, replace(CALM, **policy), memory, now)
    return desired, reason


def was(desired: int, *, changed_at: float = 0.0, asked: tuple[tuple[float, int], ...] = ()) -> Memory:
    return Memory(desired=desired, changed_at=changed_at, asked=asked)


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
    assert ask(signals(claimable, running), min=low, max=high) == answer


def test_a_target_over_one_lets_turns_share_slots() -> None:
    assert ask(signals(20), target=5.0) == (2, "backlog")


@pytest.mark.parametrize(
    ("oldest", "wanted"),
    [(None, 2), (5.0, 2), (15.0, 3), (1_000_000.0, 4)],
    ids=["none", "early", "late", "very late"],
)
def test_turns_that_wait_too_long_ask_for_more_up_to_twice_what_is_there(oldest: float | None, wanted: int) -> None:
    work = signals(20, current=2, oldest_ready_s=oldest)
    assert wanted_workers(work, replace(CALM, target=5.0, max_wait_s=10.0)) == wanted


def test_turns_that_wait_too_long_never_ask_for_more_than_a_slot_each() -> None:
    work = signals(3, current=50, oldest_ready_s=1000.0)
    assert wanted_workers(work, replace(CALM, target=3.0, max_wait_s=10.0)) == 2


def test_a_small_change_is_held_by_the_deadband_and_none_from_or_to_nothing() -> None:
    assert ask(signals(44), was(20), deadband=0.1) == (20, "within_deadband")
    assert ask(signals(46), was(20), deadband=0.1) == (23, "backlog")
    assert ask(signals(1), was(0), deadband=1.0) == (1, "backlog")
    assert ask(signals(0), was(1), deadband=1.0) == (0, "idle")


def test_a_change_waits_for_the_cooldown_of_the_last_one() -> None:
    assert ask(signals(20), was(2, changed_at=990.0), cooldown_s=30.0) == (2, "cooling_down")
    assert ask(signals(20), was(2, changed_at=970.0), cooldown_s=30.0) == (10, "backlog")


def test_steps_bound_each_change() -> None:
    assert ask(signals(100), was(2), step_up=3) == (5, "stepping")
    assert ask(signals(0), was(10), step_down=4) == (6, "stepping")
    assert ask(signals(10), was(4), step_up=3, step_down=4) == (5, "backlog")


def test_scaling_down_waits_until_nothing_in_the_window_asked_for_more() -> None:
    policy = replace(CALM, stabilization_s=300.0)
    memory: Memory | None = None
    told = []
    for now, claimable in ((0.0, 20), (100.0, 4), (200.0, 12), (290.0, 4), (310.0, 4), (520.0, 4)):
        desired, reason, memory = decide(signals(claimable), policy, memory, now)
        told.append((desired, reason))
    assert told == [
        (10, "backlog"),
        (10, "stabilizing"),
        (10, "stabilizing"),
        (10, "stabilizing"),
        (6, "stabilizing"),
        (2, "backlog"),
    ]


def test_scaling_up_does_not_wait_for_the_window() -> None:
    assert ask(signals(20), was(2, asked=((900.0, 2),)), stabilization_s=300.0) == (10, "backlog")


def test_it_begins_at_what_is_there() -> None:
    assert ask(signals(0, current=8), step_down=1) == (7, "stepping")


works = st.builds(
    Signals,
    claimable=st.integers(0, 500),
    running=st.integers(0, 500),
    oldest_ready_s=st.none() | st.floats(0, 1e6),
    current=st.integers(0, 500),
)
policies = st.builds(
    Policy,
    min=st.integers(0, 50),
    max=st.integers(50, 200),
    capacity=st.integers(1, 20),
    target=st.floats(0.1, 10),
    max_wait_s=st.none() | st.floats(1, 100),
    step_up=st.none() | st.integers(1, 10),
    step_down=st.none() | st.integers(1, 10),
    deadband=st.floats(0, 1),
    cooldown_s=st.floats(0, 100),
    stabilization_s=st.floats(0, 600),
)


@given(policies, st.lists(st.tuples(works, st.floats(0, 200)), min_size=1, max_size=12))
def test_whatever_the_work_does_the_answer_keeps_its_bounds_and_remembers_little(
    policy: Policy, course: list[tuple[Signals, float]]
) -> None:
    memory, now = None, 1_000.0
    for work, pause in course:
        now += pause
        desired, _, memory = decide(work, policy, memory, now)
        assert policy.min <= desired <= policy.max
        assert memory.desired == desired
        assert memory.changed_at <= now
        assert len(memory.asked) <= KEPT + 2
