"""Long sequences, part by part: what one statement names, and what one transaction holds, is bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def parts(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """In order, each of `size` but the last; none of what is empty."""
    return (values[start : start + size] for start in range(0, len(values), size))
