"""What the nemesis deals: by weight, and none of its caller's faults is left to luck."""

from __future__ import annotations

import itertools
import time
from typing import Any, cast

import pytest

from dispatch.demo.crew import Crew
from dispatch.demo.nemesis import Fault, Nemesis


class Nobody:
    """A crew of which nobody is well: only the caller's faults are left to deal."""

    def healthy(self) -> list[Any]:
        return []


def dealt(monkeypatch: pytest.MonkeyPatch, *, seed: int, count: int, weights: dict[str, float]) -> list[str]:
    clock = itertools.count(1.0, 1.0)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    names: list[str] = []
    faults = [Fault(name=name, act=lambda name=name: names.append(name), weight=w) for name, w in weights.items()]  # type: ignore[misc]
    nemesis = Nemesis(cast(Crew, Nobody()), seed=seed, every_s=0.5, freeze_s=1.0, faults=faults)
    while len(names) < count:
        nemesis.look()
    assert nemesis.tallies() == {name: names.count(name) for name in set(names)}
    return names


@pytest.mark.parametrize("seed", range(40))
def test_a_rare_fault_comes_when_it_should_have_come_once(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    names = dealt(monkeypatch, seed=seed, count=55, weights={"often": 4.8, "rare": 0.1, "rarer": 0.1})
    assert {"rare", "rarer"} <= set(names[:53])


def test_the_others_come_by_their_weights_in_an_order_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = {"often": 3.0, "seldom": 1.0}
    names = dealt(monkeypatch, seed=7, count=400, weights=weights)
    assert 250 < names.count("often") < 350
    assert names == dealt(monkeypatch, seed=7, count=400, weights=weights)
