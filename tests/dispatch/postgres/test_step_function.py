"""The function that settles and claims in one statement: fences, turns of tenants, stale rows, bad rows, dependents."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from dispatch import states
from dispatch.models import TurnCounter, WorkItem
from dispatch.ports import Lease
from dispatch.states import QueueState, Verb
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


def test_a_batch_is_settled_and_the_next_is_claimed_by_one_statement() -> None:
    for number in range(4):
        world.add(f"s{number % 2}")
    first = world.claim(want=2)
    with CaptureQueriesContext(connection) as seen:
        result = world.step([world.settlement(lease, result={"n": 1}) for lease in first], want=2)
    (call,) = seen.captured_queries
    assert "dispatch_step_v2" in call["sql"]
    assert len(result.settled) == len(result.claimed) == 2
    world.check()


def test_of_a_batch_the_lost_fences_are_told_apart_and_the_others_are_written() -> None:
    for number in range(3):
        world.add(f"s{number}")
    leases = world.claim(want=3)
    other_owner = replace(leases[0], owner="somebody")
    older = replace(leases[1], epoch=leases[1].epoch - 1)
    result = world.step([world.settlement(lease) for lease in (other_owner, older, leases[2])])
    assert [one.item_id for one in result.settled] == [leases[2].item_id]
    assert {one.lease.item_id for one in result.lost} == {leases[0].item_id, leases[1].item_id}
    world.check()


def test_tenants_are_served_in_turn_and_the_share_of_a_poor_one_goes_to_the_rest() -> None:
    for number in range(20):
        world.add(f"rich-{number}", tenant="rich", priority=0)
    world.add("poor", tenant="poor", priority=3)
    leases = world.claim(want=6)
    assert Counter(lease.tenant for lease in leases) == {"rich": 5, "poor": 1}


def test_a_row_that_wrongly_says_claimable_leases_nothing_and_is_put_right() -> None:
    world.add("s")
    behind = world.add("s")
    suspended = world.add("t")
    world.end(world.claim_item(suspended), Verb.SUSPEND, code="input", question="which?")
    world.claim_one()
    world.rewrite(suspended.pk, state=QueueState.CLAIMABLE)
    assert world.claim(want=5) == []
    row = world.row_of(suspended)
    assert row is not None
    assert row.state == QueueState.SUSPENDED
    assert world.fresh(behind).status == states.READY
    assert list(TurnCounter.objects.values_list("outcome", "count")) == [("skipped", 1)]


def test_a_result_that_cannot_be_stored_fails_alone() -> None:
    for number in range(5):
        world.add(f"s{number}")
    leases = world.claim(want=5)
    bad = world.settlement(leases[2], result={"text": "a\x00b"})
    result = world.step([*map(world.settlement, leases[:2]), bad, *map(world.settlement, leases[3:])])
    ends = {one.item_id: one.status for one in result.settled}
    assert ends.pop(leases[2].item_id) == states.FAILED
    assert set(ends.values()) == {states.SUCCEEDED}
    assert len(ends) == 4
    world.check()


@pytest.mark.parametrize("verb", [Verb.RETRY, Verb.SNOOZE, Verb.HANDBACK])
def test_a_requested_cancel_wins_over_every_return_to_the_queue(verb: str) -> None:
    item, following = world.add("s"), world.add("s")
    lease = world.claim_one()
    world.authority().transitions.cancel([item.pk], code="cancelled", reason="enough")
    world.end(lease, verb, delay_s=30)
    assert world.fresh(item).status == states.CANCELLED
    assert world.outcome_of(item).error_message == "enough"
    assert [one.item_id for one in world.claim()] == [following.pk]
    world.check()


def test_dependents_are_released_or_cancelled_right_after_their_parents_end() -> None:
    good, bad = world.add("g"), world.add("b")
    after_good = world.add("x", dependencies=[good.job_id])
    after_bad = world.add("y", dependencies=[bad.job_id])
    leases: dict[int, Lease] = {lease.item_id: lease for lease in world.claim(want=5)}
    world.step([world.settlement(leases[good.pk]), world.settlement(leases[bad.pk], Verb.FAILED, code="agent_error")])
    assert world.fresh(after_good).status == states.READY
    assert world.fresh(after_bad).status == states.CANCELLED
    assert [one.item_id for one in world.claim(want=5)] == [after_good.pk]
    world.check()


def test_every_way_to_end_is_counted_once() -> None:
    verbs = [Verb.SUCCEEDED, Verb.FAILED, Verb.CANCELLED, Verb.DEAD_LETTER]
    for number in range(len(verbs)):
        world.add(f"s{number}")
    leases = world.claim(want=len(verbs))
    world.step([world.settlement(lease, verb) for lease, verb in zip(leases, verbs, strict=True)])
    counted: Counter[str] = Counter()
    for outcome, count in TurnCounter.objects.values_list("outcome", "count"):
        counted[outcome] += count
    assert counted == {"completed": 1, "failed": 2, "cancelled": 1}
    assert WorkItem.objects.filter(finished_at=None).count() == 0
    world.check()
