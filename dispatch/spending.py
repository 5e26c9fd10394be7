"""What a turn may spend on models, and what a request has spent. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Limits by the names of their keys in agents.toml; None: no limit. A turn's hold over all its runs."""

    max_requests: int | None = None
    max_tokens: int | None = None
    session_max_tokens: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """What has been used of a budget before a request."""

    requests: int
    tokens: int
    session_tokens: int

    def exceeded(self, budget: Budget) -> tuple[str, int, int] | None:
        """The first limit that is used up: (its key, its value, what was spent); None when a request may be sent."""
        for key, limit, spent in (
            ("max_requests", budget.max_requests, self.requests),
            ("max_tokens", budget.max_tokens, self.tokens),
            ("session_max_tokens", budget.session_max_tokens, self.session_tokens),
        ):
            if limit is not None and spent >= limit:
                return key, limit, spent
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpend:
    """What came of one request to a model. `cost` None: not known; a request that was refused cost nothing."""

    refused: bool = False  # the provider refused it, or was never reached
    input_tokens: int = 0
    output_tokens: int = 0
    tool_calls: int = 0
    cost: Decimal | None = None
