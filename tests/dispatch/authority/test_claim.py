"""Who gets a turn, who does not, and why."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import IntegrityError, transaction

from dispatch import states
from dispatch.clock import store_now
from dispatch.models import ClaimGate, WorkItem
from dispatch.ports import Lease, Serves
from dispatch.states import QueueState, Refusal, Verb
from tests.dispatch.authority import world
from tests.dispatch.authority.test_limits import limit

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]


def _terminal() -> WorkItem:
    return world.run(world.add())


def _leased() -> WorkItem:
    item = world.add()
    world.claim_item(item, "another")
    return item


def _behind() -> WorkItem:
    world.add()
    return world.add()


def _not_due() -> WorkItem:
    return world.add(run_at=store_now() + timedelta(hours=1))


def _waiting() -> WorkItem:
    parent = world.add("parent")
    return world.add(dependencies=[parent.job_id])


def _suspended() -> WorkItem:
    return world.run(world.add(), Verb.SUSPEND, code="input", question="which?")


def _paused() -> WorkItem:
    item = world.add()
    world.authority().transitions.pause([item.session_id], by="me", reason="")
    return item


def _expired() -> WorkItem:
    item = world.add()
    world.pass_deadline(item)
    return item


def _limited() -> WorkItem:
    limit(max_running=1)
    world.claim_item(world.add("another"))
    return world.add()


def _other_agent() -> WorkItem:
    return world.add(agent_name="elsewhere")


def _other_kind() -> WorkItem:
    return world.add(kind=states.GOAL_LOOP, goal={"objective": "o"})


REFUSED: list[tuple[Callable[[], WorkItem], str]] = [
    (_terminal, Refusal.TERMINAL),
    (_leased, Refusal.LEASED_ELSEWHERE),
    (_behind, Refusal.BEHIND_TURN),
    (_not_due, Refusal.NOT_DUE),
    (_waiting, Refusal.WAITING_DEPENDENCY),
    (_suspended, Refusal.SUSPENDED),
    (_paused, Refusal.SESSION_PAUSED),
    (_limited, Refusal.LIMITED),
    (_expired, Refusal.EXPIRED),
    (_other_agent, Refusal.NO_AGENT),
    (_other_kind, Refusal.NO_AGENT),
]
KNOWN = {reason for _, reason in REFUSED} | {Refusal.TENANT_MISMATCH, Refusal.UNKNOWN}


@pytest.mark.parametrize(("make", "reason"), REFUSED, ids=[make.__name__[1:] for make, _ in REFUSED])
def test_a_claim_by_id_is_refused_with_the_reason_and_changes_nothing(
    make: Callable[[], WorkItem], reason: str
) -> None:
    item = world.fresh(make())
    before = (item.status, item.epoch, item.attempt, item.owner, world.events(item))
    assert world.authority().claim(item.job_id, owner="w1", ttl_s=60, serves=world.SERVES) == reason
    item = world.fresh(item)
    assert (item.status, item.epoch, item.attempt, item.owner, world.events(item)) == before
    world.check()


def test_an_unknown_job_and_another_tenants_envelope_are_refused() -> None:
    item = world.add()
    claim = world.authority().claim
    unknown = f"orch-{uuid.uuid4().hex}"
    assert claim(unknown, owner="w1", ttl_s=60, serves=world.SERVES) == Refusal.UNKNOWN
    assert claim(item.job_id, owner="w1", ttl_s=60, serves=world.SERVES, tenant="t2") == Refusal.TENANT_MISMATCH
    assert isinstance(claim(item.job_id, owner="w1", ttl_s=60, serves=world.SERVES, tenant="t1"), Lease)


def test_every_reason_of_a_refusal_has_its_test() -> None:
    assert set(states.REFUSALS) == KNOWN


@pytest.mark.parametrize(
    ("scope", "name"), [("fleet", ""), ("kind", "orchestrator_task"), ("agent", "echo"), ("tenant", "t1")]
)
def test_a_gate_shuts_what_it_names_and_nothing_is_rewritten(scope: str, name: str) -> None:
    item = world.add()
    before = world.row_of(item)
    gate = ClaimGate.objects.create(scope=scope, name=name, set_at=store_now())
    assert world.claim() == []
    answer = world.authority().claim(item.job_id, owner="w1", ttl_s=60, serves=world.SERVES)
    assert answer == Refusal.SESSION_PAUSED
    assert world.row_of(item) == before
    gate.delete()
    assert [lease.job_id for lease in world.claim()] == [item.job_id]


def test_a_gate_leaves_its_neighbours_alone() -> None:
    world.add("a", tenant="t1")
    item = world.add("b", tenant="t2")
    ClaimGate.objects.create(scope="tenant", name="t1", set_at=store_now())
    assert [lease.job_id for lease in world.claim(want=5)] == [item.job_id]


def test_a_consumer_gets_only_what_it_serves() -> None:
    world.add("a", agent_name="elsewhere")
    world.add("b", kind=states.GOAL_LOOP, goal={"objective": "o"})
    other = world.add("c", agent_name="other")
    only = Serves(agents=("other",), kinds=(states.ORCHESTRATOR_TASK,))
    assert [lease.job_id for lease in world.step(want=9, serves=only).claimed] == [other.job_id]
    assert world.step(want=9, serves=world.NOTHING).claimed == []


def test_turns_of_a_session_go_in_order_whatever_their_priority() -> None:
    low, critical = world.add(priority=3), world.add(priority=0)
    (lease,) = world.claim(want=5)
    assert lease.job_id == low.job_id
    world.end(lease)
    assert [lease.job_id for lease in world.claim(want=5)] == [critical.job_id]


def test_a_critical_turn_of_another_session_goes_first() -> None:
    world.add("a", priority=3)
    critical = world.add("b", priority=0)
    assert world.claim_one().job_id == critical.job_id


@pytest.mark.parametrize("make", [_behind, _not_due, _paused, _suspended, _waiting, _leased])
def test_a_queue_row_that_wrongly_says_claimable_leases_nothing_and_is_put_right(make: Callable[[], WorkItem]) -> None:
    item = make()
    status = world.fresh(item).status
    world.rewrite(item.pk, state=QueueState.CLAIMABLE, rank=0.0)
    assert item.job_id not in [lease.job_id for lease in world.claim(want=5)]
    assert world.fresh(item).status == status
    world.check()


def test_an_envelope_that_a_finished_job_left_behind_leases_nothing_and_goes() -> None:
    item = world.add()
    row = world.row_of(item)
    assert row is not None
    world.run(item)
    with world.transport().transaction():
        world.transport().publish([row])
    assert world.claim() == []
    world.check()


def test_the_database_itself_refuses_a_second_live_turn_of_a_session() -> None:
    first, second = world.add(), world.add()
    world.claim_item(first)
    with pytest.raises(IntegrityError), transaction.atomic():
        WorkItem.objects.filter(pk=second.pk).update(status=states.RUNNING, owner="thief")
    with pytest.raises(IntegrityError), transaction.atomic():
        WorkItem.objects.filter(pk=second.pk).update(status=states.LEASED, owner="thief")
    world.check()


@pytest.mark.parametrize(
    "nonsense",
    [
        {"status": "sleeping"},
        {"owner": "somebody"},
        {"status": states.RUNNING},
        {"status": states.SUCCEEDED},
        {"on_worker_lost": "shrug"},
        {"session_seq": 1},
    ],
    ids=str,
)
def test_the_database_refuses_nonsense(nonsense: dict[str, object]) -> None:
    world.add()
    item = world.add()
    with pytest.raises(IntegrityError), transaction.atomic():
        WorkItem.objects.filter(pk=item.pk).update(**nonsense)


def test_a_turn_past_its_deadline_is_not_claimed_and_the_tick_cancels_it() -> None:
    item, following = world.add(), world.add()
    world.pass_deadline(item)
    assert world.claim() == []
    assert world.authority().transitions.expire() == 1
    assert world.outcome_of(item).error_code == states.ErrorCode.EXPIRED
    assert world.claim_one().job_id == following.job_id
    world.check()


def test_a_claim_counts_attempt_and_epoch_and_writes_one_event() -> None:
    item = world.add()
    lease = world.claim_one("w7")
    assert (lease.epoch, lease.attempt, lease.turn_number, lease.session_seq) == (1, 1, 1, 1)
    assert world.events(item) == ["submitted", "running"]
    row = world.row_of(item)
    assert row is not None
    assert row.state == QueueState.CLAIMED
