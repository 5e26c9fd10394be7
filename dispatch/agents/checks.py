"""Checks: functions that say whether a goal is reached."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from dispatch.agents.registry import BadAgent, origin_of
from dispatch.envelope import is_name

Fn = TypeVar("Fn", bound=Callable[..., Any])


class Checks:
    """Checks by name."""

    def __init__(self) -> None:
        self._checks: dict[str, Callable[..., Any]] = {}

    def add(self, name: str, fn: Callable[..., Any]) -> None:
        """Register; refuses another function under a name that is taken."""
        if not isinstance(name, str) or not is_name(name):
            raise BadAgent(f"check name {name!r} does not match [A-Za-z0-9._:@-]{{1,200}}")
        if not callable(fn) or inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            raise BadAgent(f"check {name}: {fn!r} is not a function that returns")
        old = self._checks.get(name)
        if old is not None and origin_of(old) != origin_of(fn):
            places = " and ".join(".".join(origin_of(one)) for one in (old, fn))
            raise BadAgent(f"check {name} is registered twice: by {places}")
        self._checks[name] = fn

    def get(self, name: str) -> Callable[..., Any] | None:
        return self._checks.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._checks))


CHECKS = Checks()


def check(name: str) -> Callable[[Fn], Fn]:
    """Register a function of (turn, result), sync or async, as the check `name`. Raise BadAgent for a taken name.

    It returns True when the goal is reached, else False or a text that says what is missing.
    """

    def register(fn: Fn) -> Fn:
        CHECKS.add(name, fn)
        return fn

    return register
