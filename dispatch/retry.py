"""When does a failed turn run again? Pure: the caller brings the random number."""

from __future__ import annotations

from dataclasses import dataclass

BASE_S = 5.0
CAP_S = 600.0
MAX_ATTEMPTS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class RetryPolicy:
    """How long to wait between attempts (seconds), and how many attempts a turn has when its job says nothing."""

    base_s: float = BASE_S
    cap_s: float = CAP_S
    max_attempts: int = MAX_ATTEMPTS


def backoff_s(policy: RetryPolicy, attempt: int, random: float) -> float:
    """Seconds to wait after `attempt` (from 1) failed: doubled each time, capped, then cut by up to half.

    `random` lies in [0, 1]; the answer lies in [0.5, 1] of the full wait, so that turns that failed together part.
    """
    doublings = min(max(attempt, 1) - 1, 60)  # beyond that the cap holds anyway, and floats stay finite
    full = min(policy.cap_s, policy.base_s * 2.0**doublings)
    return full * (0.5 + 0.5 * min(max(random, 0.0), 1.0))
