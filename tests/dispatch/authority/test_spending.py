"""What turns spend on models: counted by the holder alone, kept when the turn fails, gone with its job."""

from __future__ import annotations

import threading
from decimal import Decimal

import pytest
from django.db import connection

from dispatch import usage
from dispatch.access import Caller
from dispatch.errors import LeaseLost
from dispatch.models import ModelTotal, ModelUsage
from dispatch.ports import Lease
from dispatch.selectors import job_get, job_result, session_get
from dispatch.spending import Budget, ModelSpend
from dispatch.states import Verb
from tests.dispatch.authority import world
from tests.dispatch.authority.test_fence import STORE
from tests.dispatch.maintenance.aging import age, ended, pruned, there

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

FREE = Budget()
CALLER = Caller(tenant="t1", name="test", kind="api_key", scopes=frozenset({"read"}))


def ask(lease: Lease, spend: ModelSpend, *, model: str = "small", budget: Budget = FREE) -> tuple[str, int, int] | None:
    used_up = STORE.model_begins(lease, model, budget)
    if used_up is None:
        STORE.model_ended(lease, model, spend)
    return used_up


def spend(input_tokens: int, output_tokens: int, cost: str | None = None, tool_calls: int = 0) -> ModelSpend:
    return ModelSpend(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        tool_calls=tool_calls,
        cost=None if cost is None else Decimal(cost),
    )


def test_a_request_is_counted_before_it_is_sent_and_a_failed_turn_keeps_what_it_spent() -> None:
    item = world.add()
    lease = world.claim_item(item)
    assert usage.job_usage(item.pk) is None
    assert STORE.model_begins(lease, "small", FREE) is None
    begun = usage.job_usage(item.pk)
    assert begun == {
        "requests": 1,
        "input_tokens": 0,
        "output_tokens": 0,
        "tool_calls": 0,
        "cost": None,
        "unpriced_requests": 1,
    }
    STORE.model_ended(lease, "small", spend(100, 20, "0.000000123", tool_calls=2))
    ask(lease, spend(10, 2))
    ask(lease, spend(1, 1, "0.5"), model="large")
    world.end(lease, Verb.FAILED, code="agent_error", message="no")
    expected = {
        "requests": 3,
        "input_tokens": 111,
        "output_tokens": 23,
        "tool_calls": 2,
        "cost": "0.500000123",
        "unpriced_requests": 1,
    }
    assert job_result(caller=CALLER, job_id=item.job_id)["usage"] == expected
    assert job_get(caller=CALLER, job_id=item.job_id)["usage"] == expected
    assert session_get(caller=CALLER, session_id="s")["usage"] == expected
    assert ModelUsage.objects.count() == 2


def test_what_a_provider_refused_is_not_counted() -> None:
    item = world.add()
    lease = world.claim_item(item)
    ask(lease, ModelSpend(refused=True))
    assert usage.job_usage(item.pk) is None
    assert not ModelTotal.objects.exists()


def test_an_old_holder_counts_nothing() -> None:
    item = world.add()
    old = world.claim_item(item)
    assert STORE.model_begins(old, "small", FREE) is None
    world.end(old, Verb.HANDBACK)
    lease = world.claim_item(item)
    with pytest.raises(LeaseLost):
        STORE.model_begins(old, "small", FREE)
    with pytest.raises(LeaseLost):
        STORE.model_ended(old, "small", spend(5, 5))
    ask(lease, spend(1, 2))
    assert list(ModelUsage.objects.order_by("epoch").values_list("epoch", "requests", "unpriced", "input_tokens")) == [
        (old.epoch, 1, 1, 0),
        (lease.epoch, 1, 1, 1),
    ]


def test_a_turns_budget_holds_over_its_runs_and_a_sessions_over_its_turns() -> None:
    item = world.add()
    first = world.claim_item(item)
    ask(first, spend(60, 0))
    world.end(first, Verb.HANDBACK)
    lease = world.claim_item(item)
    assert ask(lease, spend(40, 0), budget=Budget(max_tokens=100, max_requests=2)) is None
    assert ask(lease, spend(1, 0), budget=Budget(max_tokens=100)) == ("max_tokens", 100, 100)
    assert ask(lease, spend(1, 0), budget=Budget(max_requests=2)) == ("max_requests", 2, 2)
    world.end(lease, Verb.SUCCEEDED)
    following = world.claim_item(world.add())
    assert ask(following, spend(1, 0), budget=Budget(max_tokens=100, session_max_tokens=101)) is None
    used_up = ask(following, spend(1, 0), budget=Budget(session_max_tokens=101))
    assert used_up == ("session_max_tokens", 101, 101)
    elsewhere = world.claim_item(world.add("another"))
    assert ask(elsewhere, spend(1, 0), budget=Budget(session_max_tokens=101)) is None


def test_turns_that_count_at_once_lose_nothing() -> None:
    leases = [world.claim_item(world.add(f"s{n}")) for n in range(4)]
    failures: list[BaseException] = []

    def work(lease: Lease) -> None:
        try:
            for _ in range(5):
                ask(lease, spend(3, 2))
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=[lease]) for lease in leases]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    (total,) = usage.model_totals()
    assert (total.agent_name, total.requests, total.input_tokens, total.output_tokens) == (world.AGENT, 20, 60, 40)


def test_retention_deletes_it_with_its_job_and_the_totals_stay() -> None:
    item = world.add()
    lease = world.claim_item(item)
    ask(lease, spend(7, 3, "0.1"))
    world.end(lease, Verb.SUCCEEDED)
    stays = ended("other")
    age(world.fresh(item))
    assert pruned()["model_usage"] == 1
    assert not ModelUsage.objects.exists()
    assert [total.input_tokens for total in usage.model_totals()] == [7]
    assert there(stays) == [True]
