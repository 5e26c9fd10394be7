"""One result that cannot be stored ends its own turn, and never its neighbours'."""

from __future__ import annotations

from typing import Any

import pytest

from dispatch import states
from dispatch.ports import Settlement
from dispatch.states import Verb
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

LOOP: list[Any] = []
LOOP.append(LOOP)
UNFIT: dict[str, dict[str, Any]] = {
    "an object": {"result": object()},
    "not a number": {"result": float("nan")},
    "a loop": {"result": LOOP},
    "bytes": {"result": {"raw": b"\x00"}},
    "keys that are no texts": {"result": {(1, 2): 3}},
    "a state": {"result": 1, "state": {"handle": object()}},
    "a lone surrogate in a message": {"verb": Verb.FAILED, "code": "agent_error", "message": "\ud800"},
    "a delay beyond the calendar": {"verb": Verb.SNOOZE, "delay_s": 1e15},
    "choices that are no texts": {"verb": Verb.SUSPEND, "code": "input", "question": "which?", "choices": [object()]},
}
# what SQLite stores and Postgres refuses must come out as some end on both
DOUBTFUL: dict[str, dict[str, Any]] = {
    "NUL in a result": {"result": {"text": "a\x00b"}},
    "NUL in a message": {"verb": Verb.FAILED, "code": "agent_error", "message": "a\x00b"},
    "a lone surrogate in a result": {"result": "\ud800"},
    "a code longer than its column": {"verb": Verb.FAILED, "code": "x" * 500, "message": "m"},
}


def _settlements(place: int, bad: dict[str, Any]) -> list[Settlement]:
    leases = [world.claim_item(world.add(f"s{n}")) for n in range(5)]
    return [
        world.settlement(lease, **({"verb": Verb.SUCCEEDED} | bad))
        if n == place
        else world.settlement(lease, result=n, state={"n": n})
        for n, lease in enumerate(leases)
    ]


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("bad", UNFIT.values(), ids=UNFIT)
def test_a_turn_that_cannot_be_stored_fails_alone(place: int, bad: dict[str, Any]) -> None:
    settlements = _settlements(place, bad)
    waiting = world.add("next")
    result = world.step(settlements, want=3)
    assert len(result.settled) == 5
    assert [lease.job_id for lease in result.claimed] == [waiting.job_id]
    for n, settlement in enumerate(settlements):
        outcome = world.outcome_of(world.fresh_by(settlement.lease.item_id))
        if n == place:
            assert (outcome.status, outcome.error_code) == (states.FAILED, states.ErrorCode.AGENT_ERROR)
            assert outcome.error_message == "the result could not be stored"
        else:
            assert (outcome.status, outcome.result) == (states.SUCCEEDED, n)
    world.check()


@pytest.mark.parametrize("bad", DOUBTFUL.values(), ids=DOUBTFUL)
def test_what_one_database_stores_and_another_refuses_ends_the_turn_on_both(bad: dict[str, Any]) -> None:
    settlements = _settlements(1, bad)
    assert len(world.step(settlements).settled) == 5
    ends = [world.fresh_by(settlement.lease.item_id).status for settlement in settlements]
    assert ends[:1] + ends[2:] == [states.SUCCEEDED] * 4
    assert ends[1] in states.TERMINAL
    world.check()


def test_all_of_a_batch_may_be_bad() -> None:
    leases = [world.claim_item(world.add(f"s{n}")) for n in range(4)]
    result = world.step([world.settlement(lease, result=object()) for lease in leases], want=1)
    assert [settled.status for settled in result.settled] == [states.FAILED] * 4
    world.check()


def test_a_lost_lease_among_bad_rows_is_still_told_apart() -> None:
    old = world.claim_item(world.add("a"))
    world.rescue(old)
    bad, good = world.claim_item(world.add("b")), world.claim_item(world.add("c"))
    result = world.step([world.settlement(old), world.settlement(bad, result=object()), world.settlement(good)])
    assert [lost.lease for lost in result.lost] == [old]
    assert sorted(settled.status for settled in result.settled) == [states.FAILED, states.SUCCEEDED]
    world.check()
