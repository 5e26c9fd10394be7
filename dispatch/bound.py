"""The admission bound where the store itself holds it: a CHECK refuses, room is made, and it is tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import IntegrityError

from dispatch.errors import QueueFull

T = TypeVar("T")

TRIES = 8
CONSTRAINT = "admission_shards_bound"


def refused_by_bound(error: IntegrityError) -> bool:
    """Whether it was the admission bound that refused."""
    diagnosis = getattr(error.__cause__, "diag", None)
    return getattr(diagnosis, "constraint_name", None) == CONSTRAINT


def admitted(work: Callable[[], T], *, make_room: Callable[[], None]) -> T:
    """Run `work`, again each time the bound refuses it and `make_room` finds room. Raises QueueFull."""
    for _ in range(TRIES):
        try:
            return work()
        except IntegrityError as error:
            if not refused_by_bound(error):
                raise
            make_room()
    raise QueueFull
