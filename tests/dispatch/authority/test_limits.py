"""Caps and rates: never one turn more than a limit allows, and nobody else is held."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dispatch.clock import store_now
from dispatch.explaining import explain
from dispatch.models import ClaimLimit, WorkItem
from dispatch.states import Refusal, Verb
from tests.dispatch.authority import world
from tests.dispatch.test_explaining import live_worker

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


def limit(scope: str = "agent", name: str = "echo", *, rested_s: float = 0, **more: Any) -> ClaimLimit:
    """A limit; its bucket was full `rested_s` seconds ago, or holds `tokens`."""
    now = store_now()
    values: dict[str, Any] = {"burst": 1, "reason": "x", "set_by": "ops", "set_at": now}
    values["tokens"] = more.get("burst", 1)
    values["refilled_at"] = now - timedelta(seconds=rested_s)
    return ClaimLimit.objects.create(scope=scope, name=name, **{**values, **more})


def sessions(count: int, *, tenant: str = "t1", **more: Any) -> list[WorkItem]:
    return [world.add(f"{tenant}-{more.get('agent_name', '')}-{n}", tenant=tenant, **more) for n in range(count)]


@pytest.mark.parametrize(("scope", "name"), [("agent", "echo"), ("tenant", "t1")])
def test_no_more_turns_run_at_once_than_the_cap(scope: str, name: str) -> None:
    sessions(5)
    limit(scope, name, max_running=2)
    first = world.claim(want=5)
    assert len(first) == 2
    assert world.claim("w2", want=5) == []
    result = world.step([world.settlement(first[0])], want=5)
    assert len(result.claimed) == 1, "the place that a turn frees is taken in the same step"
    world.check()


def test_a_cap_counts_what_ran_before_it_was_set() -> None:
    sessions(4)
    running = world.claim(want=3)
    limit(max_running=2)
    assert world.claim(want=5) == []
    for lease in running[:2]:
        world.end(lease)
    assert len(world.claim(want=5)) == 1


def test_other_agents_and_tenants_are_not_held() -> None:
    held = sessions(3)
    others = [*sessions(2, agent_name="other"), *sessions(2, tenant="t2", agent_name="other")]
    limit(max_running=1)
    claimed = {lease.job_id for lease in world.claim(want=20)}
    assert claimed >= {item.job_id for item in others}
    assert len(claimed & {item.job_id for item in held}) == 1


def test_two_limits_hold_together() -> None:
    sessions(4)
    sessions(4, tenant="t2")
    limit("agent", "echo", max_running=3)
    limit("tenant", "t1", max_running=1)
    claimed = world.claim(want=20)
    assert len(claimed) == 3
    assert sum(lease.tenant == "t1" for lease in claimed) == 1


def test_a_bucket_lets_its_burst_start_and_then_its_rate() -> None:
    sessions(10)
    bucket = limit(rate_per_s=100.0, burst=3)
    assert len(world.claim(want=10)) >= 3
    bucket.refresh_from_db()
    assert bucket.tokens < 1
    ClaimLimit.objects.update(rate_per_s=0.01)
    assert world.claim(want=10) == []
    ClaimLimit.objects.update(refilled_at=store_now() - timedelta(seconds=200))
    assert len(world.claim(want=10)) == 2, "two tokens came back in 200 s"


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    sessions(6)
    limit(rate_per_s=0.01, burst=3, rested_s=1_000_000)
    assert len(world.claim(want=10)) == 3


def test_a_start_is_counted_once_whatever_comes_of_it() -> None:
    (item,) = sessions(1)
    limit(rate_per_s=0.001, burst=2)
    world.end(world.claim_one(), Verb.HANDBACK)
    world.end(world.claim_one(), Verb.HANDBACK)
    assert world.claim() == []
    assert world.fresh(item).attempt == 0


def test_a_claim_by_id_takes_its_token_too() -> None:
    first, second = sessions(2)
    limit(rate_per_s=0.001, burst=1)
    claim = world.authority().claim
    assert not isinstance(claim(first.job_id, owner="w", ttl_s=60, serves=world.SERVES), str)
    assert claim(second.job_id, owner="w", ttl_s=60, serves=world.SERVES) == Refusal.LIMITED


def test_explain_names_the_limit_that_holds() -> None:
    first, second = sessions(2)
    live_worker("echo")
    cap = limit(max_running=1)
    assert explain(second)["reason"] == "claimable"
    world.claim_item(first)
    told = explain(second)
    assert (told["runnable"], told["reason"]) == (False, "limited")
    assert told["detail"] == "agent echo runs 1 turns, and may run 1 at once"
    cap.delete()
    limit("tenant", "t1", rate_per_s=0.1, tokens=0)
    assert explain(second)["detail"] in (
        "tenant t1 may start 0.1 turns a second, the next in 10 s",
        "tenant t1 may start 0.1 turns a second, the next in 9 s",
    )
