"""Any order of what may happen to jobs: the store does what a small model does, and breaks no invariant."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dispatch import states
from dispatch.clock import store_now
from dispatch.errors import NoQuestion, NotRetryable
from dispatch.models import Question, WorkItem
from dispatch.ports import Lease
from dispatch.states import Verb
from sessions_app.models import Session, Turn
from tests.dispatch.authority import world
from tests.dispatch.authority.model import Model, ModelItem, ModelSession

pytestmark = [pytest.mark.store, pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("world")]

SESSIONS = [("t1", "a"), ("t1", "b"), ("t2", "a"), ("t2", "c")]
OWNERS = ["w1", "w2"]
RETURNS = [Verb.RETRY, Verb.SNOOZE, Verb.HANDBACK]
numbers = st.integers(0, 999)


def _needs(*statuses: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A rule that needs an item in one of these statuses."""
    return precondition(lambda self: any(item.status in statuses for item in self.model.items))


class AuthorityMachine(RuleBasedStateMachine):
    """Rules act on both; `same` compares them after each."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.leases: list[tuple[ModelItem, Lease]] = []  # every one that was ever given
        self.marks = itertools.count(1)

    @initialize()
    def begin(self) -> None:
        world.wipe()

    # -- what is there to act on ---------------------------------------------------------------------------------------
    def _pick(self, number: int, *statuses: str) -> ModelItem | None:
        found = [item for item in self.model.items if not statuses or item.status in statuses]
        return found[number % len(found)] if found else None

    def _row(self, item: ModelItem) -> WorkItem:
        return WorkItem.objects.get(pk=item.pk)

    def _session_pk(self, session: ModelSession) -> int:
        tenant, name = session.key
        return Session.objects.get(tenant=tenant, session_id=name).pk

    def _held(self) -> list[tuple[ModelItem, Lease]]:
        return [(item, lease) for item, lease in self.leases if item.live and item.epoch == lease.epoch]

    # -- admission -----------------------------------------------------------------------------------------------------
    @rule(
        key=st.sampled_from(SESSIONS),
        priority=st.integers(0, 3),
        later=st.sampled_from([False, False, False, True]),
        waits_for=st.lists(numbers, max_size=2),
        lost=st.sampled_from(["retry", "retry", "fail"]),
        attempts=st.integers(1, 3),
    )
    def submit(
        self, key: tuple[str, str], priority: int, later: bool, waits_for: list[int], lost: str, attempts: int
    ) -> None:
        own = [item for item in self.model.items if item.session.key[0] == key[0]]
        parents = list({id(own[n % len(own)]): own[n % len(own)] for n in waits_for}.values()) if own else []
        item = world.add(
            key[1],
            tenant=key[0],
            priority=priority,
            run_at=store_now() + timedelta(hours=1) if later else None,
            dependencies=[parent.job_id for parent in parents],
            on_worker_lost=lost,
            max_attempts=attempts,
        )
        self.model.submit(
            key, item.pk, item.job_id, later=later, parents=parents, max_attempts=attempts, on_worker_lost=lost
        )

    # -- the worker's side ---------------------------------------------------------------------------------------------
    def _given(self, lease: Lease, owner: str) -> None:
        item = next(item for item in self.model.items if item.pk == lease.item_id)
        session = item.session
        self.model.claim(item, owner)
        assert (lease.epoch, lease.attempt, lease.owner) == (item.epoch, item.attempt, owner)
        assert (lease.session_seq, lease.turn_number) == (item.seq, session.turn_number + 1)
        assert lease.state == session.state, "a turn sees what the turn before it committed"
        self.leases.append((item, lease))

    @rule(owner=st.sampled_from(OWNERS), want=st.integers(1, 4))
    def claim(self, owner: str, want: int) -> None:
        ready = [item for item in self.model.items if item.claimable]
        claimed = world.claim(owner, want)
        assert len(claimed) == min(want, len(ready))
        for lease in claimed:
            self._given(lease, owner)

    @precondition(lambda self: self.model.items)
    @rule(owner=st.sampled_from(OWNERS), number=numbers)
    def claim_by_id(self, owner: str, number: int) -> None:
        item = self._pick(number)
        assert item is not None
        answer = world.authority().claim(item.job_id, owner=owner, ttl_s=60, serves=world.SERVES)
        assert isinstance(answer, Lease) == item.claimable, answer
        if isinstance(answer, Lease):
            self._given(answer, owner)

    def _settle(self, number: int, verb: str, *, later: bool = False, state: Any = None, **more: Any) -> None:
        item, lease = self._held()[number % len(self._held())]
        if verb == Verb.SUSPEND and not item.cancel_requested:
            item.suspended_for = more["code"]
        delay = {"delay_s": 3600.0} if later else {}
        result = world.end(lease, verb, state=state, **delay, **more)
        (settled,) = result.settled
        assert not result.lost
        assert settled.status == self.model.settle(item, verb, later=later, state=state)

    @precondition(lambda self: self._held())
    @rule(number=numbers)
    def succeed(self, number: int) -> None:
        mark = next(self.marks)
        self._settle(number, Verb.SUCCEEDED, state={"last": mark}, result={"said": mark})

    @precondition(lambda self: self._held())
    @rule(number=numbers, verb=st.sampled_from([Verb.FAILED, Verb.DEAD_LETTER, Verb.CANCELLED]))
    def end_badly(self, number: int, verb: str) -> None:
        self._settle(number, verb, code="cancelled" if verb == Verb.CANCELLED else "agent_error", message="it broke")

    @precondition(lambda self: self._held())
    @rule(number=numbers, verb=st.sampled_from(RETURNS), later=st.booleans())
    def give_back(self, number: int, verb: str, later: bool) -> None:
        self._settle(number, verb, later=later and verb != Verb.HANDBACK, code="agent_error", message="again")

    @precondition(lambda self: self._held())
    @rule(number=numbers)
    def ask(self, number: int) -> None:
        self._settle(number, Verb.SUSPEND, code="input", question="which?")

    @precondition(lambda self: self._held())
    @rule(number=numbers, waits_for=st.lists(numbers, min_size=1, max_size=2))
    def wait_for_children(self, number: int, waits_for: list[int]) -> None:
        item, _ = self._held()[number % len(self._held())]
        others = [o for o in self.model.items if o is not item and o.session.key[0] == item.session.key[0]]
        chosen = [others[n % len(others)] for n in waits_for] if others else []
        if not chosen:
            return
        if not item.cancel_requested:
            item.children += chosen
        self._settle(number, Verb.SUSPEND, code="children", wait_for=tuple(o.job_id for o in chosen))

    @precondition(lambda self: len(self._held()) >= 2)
    @rule(first=st.sampled_from([Verb.SUCCEEDED, Verb.RETRY]), owner=st.sampled_from(OWNERS))
    def settle_all_and_claim(self, first: str, owner: str) -> None:
        """What a busy consumer does: one commit for the ends and the next claim."""
        held = self._held()
        verbs = [first] + [Verb.SUCCEEDED] * (len(held) - 1)
        marks = [{"last": next(self.marks)} for _ in held]
        result = world.step(
            [
                world.settlement(lease, verb, state=mark, result=1)
                for (_, lease), verb, mark in zip(held, verbs, marks, strict=True)
            ],
            owner=owner,
            want=2,
        )
        assert len(result.settled) == len(held)
        before = [item.claimable for item in self.model.items]
        for (item, _), verb, mark in zip(held, verbs, marks, strict=True):
            self.model.settle(item, verb, later=False, state=mark if verb == Verb.SUCCEEDED else None)
        # dependents are let go after the commit, so this claim has not seen them
        assert len(result.claimed) >= min(2, sum(before))
        for lease in result.claimed:
            self._given(lease, owner)

    @precondition(lambda self: len(self.leases) > len(self._held()))
    @rule(number=numbers, verb=st.sampled_from([Verb.SUCCEEDED, Verb.RETRY, Verb.HANDBACK, Verb.FAILED]))
    def settle_late(self, number: int, verb: str) -> None:
        """A holder whose lease has gone writes nothing."""
        current = [id(lease) for _, lease in self._held()]
        old = [lease for _, lease in self.leases if id(lease) not in current]
        result = world.end(old[number % len(old)], verb, result="late", state={"late": True})
        assert (len(result.settled), len(result.lost)) == (0, 1)

    @precondition(lambda self: self.leases)
    @rule(number=numbers)
    def renew(self, number: int) -> None:
        item, lease = self.leases[number % len(self.leases)]
        held = item.live and item.epoch == lease.epoch
        answer = world.authority().renew(ttl_s=90, leases=[lease.fence])
        assert list(answer.lost) == ([] if held else [item.pk])
        assert list(answer.cancelled) == ([item.pk] if held and item.cancel_requested else [])

    # -- stopping ------------------------------------------------------------------------------------------------------
    @precondition(lambda self: self.model.items)
    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        item = self._pick(number)
        assert item is not None
        answer = world.authority().transitions.cancel([item.pk], code="cancelled", reason="enough")
        assert answer == {item.pk: self.model.cancel(item)}
        self.model.follow()

    @_needs(states.SUBMITTED, states.READY, states.SUSPENDED)
    @rule(number=numbers)
    def expire(self, number: int) -> None:
        item = self._pick(number, states.SUBMITTED, states.READY, states.SUSPENDED)
        assert item is not None
        world.pass_deadline(self._row(item))
        assert world.authority().transitions.expire() == 1
        assert self.model.cancel(item, "expired") == "done"
        self.model.follow()

    @precondition(lambda self: self._held())
    @rule(number=numbers)
    def lose_worker(self, number: int) -> None:
        item, lease = self._held()[number % len(self._held())]
        assert world.rescue(lease) == 1
        self.model.rescue(item)

    @rule()
    def rescue_nobody(self) -> None:
        assert world.authority().transitions.rescue() == 0

    # -- time, people, operators ---------------------------------------------------------------------------------------
    @precondition(lambda self: any(item.later and not item.final for item in self.model.items))
    @rule(number=numbers)
    def due(self, number: int) -> None:
        waiting = [item for item in self.model.items if item.later and not item.final]
        item = waiting[number % len(waiting)]
        world.come_due(self._row(item))
        world.authority().transitions.due()
        item.later = False

    @_needs(states.SUSPENDED)
    @rule(number=numbers)
    def reply(self, number: int) -> None:
        item = self._pick(number, states.SUSPENDED)
        assert item is not None
        question = Question.objects.filter(work_item_id=item.pk, answered_at=None, withdrawn_at=None).first()
        assert (question is not None) == (item.suspended_for == "input")
        if question is None:
            return
        world.authority().transitions.reply(question.pk, answer="this", by="somebody")
        self.model.wake(item)
        with pytest.raises(NoQuestion):
            world.authority().transitions.reply(question.pk, answer="that", by="somebody else")

    @precondition(lambda self: self.model.items)
    @rule(number=numbers)
    def retry(self, number: int) -> None:
        item = self._pick(number)
        assert item is not None
        if self.model.retry(item):
            world.authority().transitions.retry(item.pk)
        else:
            with pytest.raises(NotRetryable):
                world.authority().transitions.retry(item.pk)

    @precondition(lambda self: self.model.sessions)
    @rule(number=numbers, wish=st.sampled_from(["pause", "run", "run"]))
    def control(self, number: int, wish: str) -> None:
        session = list(self.model.sessions.values())[number % len(self.model.sessions)]
        transitions, pk = world.authority().transitions, self._session_pk(session)
        already = session.desired == wish
        answer = (transitions.pause if wish == "pause" else transitions.resume)([pk], by="me", reason="so")
        assert (answer[pk] == "already") == already
        if not already:
            self.model.control(session, wish)

    @precondition(lambda self: self.model.sessions)
    @rule(number=numbers)
    def kill(self, number: int) -> None:
        session = list(self.model.sessions.values())[number % len(self.model.sessions)]
        live = any(item.live for item in session.items)
        unfinished = any(not item.final for item in session.items)
        pk = self._session_pk(session)
        answer = world.authority().transitions.kill([pk], by="me", reason="so")
        assert answer[pk] == ("requested" if live else "applied" if unfinished else "already")
        self.model.kill(session)

    # -- faults --------------------------------------------------------------------------------------------------------
    @precondition(lambda self: any(not item.final for item in self.model.items))
    @rule(number=numbers, damage=st.sampled_from(["gone", *range(7)]))
    def damage_and_repair(self, number: int, damage: str | int) -> None:
        item = self._pick(number, *states.UNFINISHED)
        assert item is not None
        if isinstance(damage, int):
            world.rewrite(item.pk, state=damage)
        else:
            with world.transport().transaction():
                world.transport().ack([item.pk])
        world.authority().repair()

    @rule()
    def tick(self) -> None:
        transitions = world.authority().transitions
        transitions.release_waiting()
        assert transitions.expire() == 0
        assert world.authority().repair() == 0

    # -- what holds ----------------------------------------------------------------------------------------------------
    @invariant()
    def same(self) -> None:
        rows = {row.pk: row for row in WorkItem.objects.all()}
        for item in self.model.items:
            row = rows[item.pk]
            kept = (row.status, row.attempt, row.epoch, row.owner, row.session_seq)
            assert kept == (item.status, item.attempt, item.epoch, item.owner, item.seq), item.job_id
        for session in self.model.sessions.values():
            stored = Session.objects.get(tenant=session.key[0], session_id=session.key[1])
            assert (stored.turn_number, stored.state) == (session.turn_number, session.state)
            assert stored.desired == session.desired
            head = session.head
            assert stored.head_seq == (head.seq if head else None)
            if head is not None or session.desired == "pause":
                assert stored.status == session.status
            else:
                assert stored.status in ("idle", "failed", "cancelled")
        assert _runs() == sorted((item.pk, *run) for item in self.model.items for run in item.runs)
        assert world.counted() == dict(self.model.counts)

    @invariant()
    def unbroken(self) -> None:
        world.check()


def _runs() -> list[tuple[int, int, int, str]]:
    return sorted(Turn.objects.values_list("work_item_id", "turn_number", "epoch", "status"))


def test_the_store_does_what_the_model_does_in_any_order_of_events() -> None:
    run_state_machine_as_test(
        AuthorityMachine,
        settings=settings(
            max_examples=25,
            stateful_step_count=40,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
