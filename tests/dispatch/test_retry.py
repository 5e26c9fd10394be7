"""When a failed turn runs again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatch.retry import RetryPolicy, backoff_s


@pytest.mark.parametrize(("attempt", "full"), [(1, 5), (2, 10), (3, 20), (7, 320), (8, 600), (5000, 600)])
def test_the_wait_doubles_up_to_the_cap(attempt: int, full: float) -> None:
    policy = RetryPolicy()
    assert backoff_s(policy, attempt, 1.0) == full
    assert backoff_s(policy, attempt, 0.0) == full / 2


@given(base=st.floats(0, 1e6), cap=st.floats(0, 1e6), attempt=st.integers(-3, 10**6), random=st.floats(-1, 2, width=32))
def test_the_wait_lies_between_half_of_the_full_one_and_the_whole(
    base: float, cap: float, attempt: int, random: float
) -> None:
    policy = RetryPolicy(base_s=base, cap_s=cap)
    full = backoff_s(policy, attempt, 1.0)
    assert full / 2 <= backoff_s(policy, attempt, random) <= full <= cap


def test_turns_that_failed_together_come_apart() -> None:
    assert len({backoff_s(RetryPolicy(), 2, random / 10) for random in range(10)}) == 10
