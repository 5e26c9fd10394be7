"""Goals in the state store: what is committed under the fence, attempts since then, and the one life they have."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dispatch import states
from dispatch.authority.goals import DatabaseGoalStore
from dispatch.authority.leases import DatabaseTurnStore
from dispatch.clock import store_now
from dispatch.errors import LeaseLost
from dispatch.goal_ports import IterationDone
from dispatch.models import KnownCheck, Question, StepResult, WorkItem
from dispatch.ports import Lease, Serves
from dispatch.states import Verb
from fleet import goals
from sessions_app.models import Goal, GoalIteration
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

SERVES = Serves(agents=(world.AGENT,), kinds=states.KINDS)
STORE = DatabaseGoalStore()


def add(session: str = "s", *, goal: dict[str, Any] | None = None, **more: Any) -> WorkItem:
    definition = {"objective": "reach it", "validation": None, "constraints": {"a": 1}, "max_iterations": 3}
    return world.add(session, kind=states.GOAL_LOOP, goal={**definition, **(goal or {})}, **more)


def claim(item: WorkItem, owner: str = "w1") -> Lease:
    lease = world.authority().claim(item.job_id, owner=owner, ttl_s=60, serves=SERVES)
    assert isinstance(lease, Lease), lease
    return lease


def done(iteration: int, *, passed: bool = False, **more: Any) -> IterationDone:
    facts: dict[str, Any] = {
        "result": {"at": iteration},
        "excerpt": "excerpt",
        "state": {"n": iteration},
        "validation": {"passed": passed, "output": "no"},
        "seconds": 1.5,
    }
    return IterationDone(iteration=iteration, passed=passed, **{**facts, **more})


def goal_of(item: WorkItem) -> Goal:
    return Goal.objects.get(work_item_id=item.pk)


def numbers(item: WorkItem) -> list[tuple[int, int]]:
    rows = GoalIteration.objects.filter(work_item_id=item.pk).order_by("iteration")
    return list(rows.values_list("iteration", "epoch"))


def test_iterations_are_counted_by_their_verdict_and_a_refused_one_is_not() -> None:
    before = goals.iteration_totals()
    lease = claim(add())
    STORE.commit(lease, done(1))
    STORE.commit(lease, done(2))
    STORE.commit(lease, done(3, passed=True))
    with pytest.raises(LeaseLost):
        STORE.commit(lease, done(3, passed=True))
    grown = {result: total - before[result] for result, total in goals.iteration_totals().items()}
    assert grown == {"passed": 1, "not_passed": 2}


def test_a_check_is_known_while_a_worker_announces_it() -> None:
    lease = claim(add())
    now = store_now()
    KnownCheck.objects.create(name="green", first_seen=now, last_seen=now - timedelta(seconds=599))
    KnownCheck.objects.create(name="gone", first_seen=now, last_seen=now - timedelta(seconds=601))
    assert [STORE.is_check_known(lease, name) for name in ("green", "gone", "never")] == [True, False, False]


def test_goals_that_have_not_ended_are_counted_by_status() -> None:
    claim(add("one"))
    add("two")
    counts = goals.goals_by_status()
    assert {status: count for status, count in counts.items() if count} == {"running": 1, "pending": 1}
    assert len(counts) > 2, "those of which there is none are 0"


def test_an_iteration_is_written_whole_with_its_checkpoint() -> None:
    item = add()
    lease = claim(item)
    assert STORE.load(lease).iteration == 0
    assert STORE.commit(lease, done(1)) is False
    kept, row = STORE.load(lease), GoalIteration.objects.get(work_item_id=item.pk)
    assert (kept.iteration, kept.last_result, kept.state, kept.spent_s) == (1, {"at": 1}, {"n": 1}, 1.5)
    assert (kept.objective, kept.constraints, kept.max_iterations) == ("reach it", {"a": 1}, 3)
    assert (row.result_excerpt, row.validation["output"], row.epoch) == ("excerpt", "no", lease.epoch)
    assert row.checkpoint_id == world.fresh(item).checkpoint_id != ""
    STORE.commit(lease, done(2, passed=True))
    assert STORE.load(lease).passed
    assert world.fresh(item).checkpoint_id != row.checkpoint_id
    world.check()


def test_a_stale_holder_commits_nothing_and_no_iteration_is_committed_twice() -> None:
    item = add()
    stale = claim(item, "w1")
    world.rescue(stale)
    current = claim(item, "w1")
    before = world.fresh(item).checkpoint_id
    with pytest.raises(LeaseLost):
        STORE.commit(stale, done(1))
    assert (numbers(item), goal_of(item).iteration, world.fresh(item).checkpoint_id) == ([], 0, before)
    STORE.commit(current, done(1))
    for again in (1, 3):
        with pytest.raises(LeaseLost):
            STORE.commit(current, done(again))
    assert numbers(item) == [(1, current.epoch)]


def test_attempts_count_the_losses_since_the_last_committed_iteration() -> None:
    item = add(max_attempts=2)
    lease = claim(item)
    for iteration in (1, 2):
        world.rescue(lease)
        assert world.fresh(item).status == states.READY
        lease = claim(item)
        assert lease.attempt == 2
        STORE.commit(lease, done(iteration))
        assert world.fresh(item).attempt == 1
    world.rescue(lease)
    world.rescue(claim(item))
    assert world.fresh(item).status == states.DEAD_LETTER
    assert numbers(item) == [(1, 2), (2, 3)]
    world.check()


def test_a_session_that_shall_pause_is_told_with_the_commit_and_the_hand_back_pauses_it() -> None:
    item = add()
    lease = claim(item)
    world.authority().transitions.pause([item.session_id], by="me", reason="")
    assert STORE.commit(lease, done(1)) is True
    world.end(lease, Verb.HANDBACK)
    assert (world.session_of(item).status, world.fresh(item).status, world.fresh(item).attempt) == (
        "paused",
        states.READY,
        0,
    )
    world.check()


def _cancelled(item: WorkItem) -> None:
    world.authority().transitions.cancel([item.pk], code="cancelled")


def _expired(item: WorkItem) -> None:
    world.pass_deadline(item)
    world.authority().transitions.expire()


def _dead(item: WorkItem) -> None:
    world.rescue(claim(item))


def _missed(item: WorkItem) -> None:
    world.end(claim(item), Verb.FAILED, code="not_validated", message="no")


def _killed(item: WorkItem) -> None:
    world.authority().transitions.kill([item.session_id], by="me", reason="")


def _reached(item: WorkItem) -> None:
    world.end(claim(item), result="it")


@pytest.mark.parametrize(
    ("how", "status"),
    [
        (_cancelled, "cancelled"),
        (_expired, "cancelled"),
        (_dead, "dead_letter"),
        (_missed, "failed"),
        (_killed, "cancelled"),
        (_reached, "succeeded"),
    ],
)
def test_however_its_item_ends_no_reader_takes_the_goal_for_active(how: Any, status: str) -> None:
    item, other = add(max_attempts=1), add("other")
    assert goals.goal_counts(tenant="t1") == goals.GoalCounts(active=2, tracked=2)
    how(item)
    assert world.fresh(item).status == status
    assert goals.goal_counts(tenant="t1") == goals.GoalCounts(active=1, tracked=2)
    assert goals.goal_counts(tenant="t2") == goals.GoalCounts(active=0, tracked=0)
    (shown,) = goals.goals_active(tenant=None)
    assert (shown["job_id"], shown["status"], shown["max_iterations"]) == (other.job_id, "pending", 3)


def test_a_retry_goes_on_at_the_next_iteration_and_gives_an_exhausted_goal_as_many_again() -> None:
    item = add(max_attempts=1)
    lease = claim(item)
    STORE.commit(lease, done(1))
    world.rescue(lease)
    world.authority().transitions.retry(item.pk)
    kept = STORE.load(claim(item))
    assert (kept.iteration, kept.max_iterations, kept.spent_s, kept.state) == (1, 3, 0.0, None)
    lease = Lease(**{**_facts(item), "epoch": world.fresh(item).epoch})
    for iteration in (2, 3):
        STORE.commit(lease, done(iteration))
    world.end(lease, Verb.FAILED, code="not_validated", message="no")
    world.authority().transitions.retry(item.pk)
    kept = STORE.load(claim(item))
    assert (kept.iteration, kept.max_iterations, kept.last_result) == (3, 6, {"at": 3})


def _facts(item: WorkItem) -> dict[str, Any]:
    """The fields of the lease that holds it."""
    fresh = world.fresh(item)
    fields = ("job_id", "tenant", "session_seq", "kind", "agent_name", "attempt", "max_attempts", "on_worker_lost")
    return {
        **{field: getattr(fresh, field) for field in fields},
        "item_id": item.pk,
        "owner": fresh.owner,
        "session_pk": item.session_id,
        "session_id": "s",
        "turn_number": 1,
        "deadline": None,
        "task": "",
        "payload": {},
        "state": {},
    }


def test_a_goal_that_is_coalesced_into_gets_the_newer_definition() -> None:
    held = world.claim_item(world.add())
    waiting = add()
    newer = {"objective": "another", "validation": {"check": "c"}, "constraints": None, "max_iterations": None}
    item = world.new(kind=states.GOAL_LOOP, goal=newer, on_busy="coalesce", task="newer")
    (submitted,) = world.authority().submit([item])
    assert (submitted.coalesced, submitted.job_id) == (True, waiting.job_id)
    goal = goal_of(waiting)
    assert (goal.objective, goal.validation, goal.max_iterations) == ("another", {"check": "c"}, 10)
    assert world.fresh(waiting).goal == newer
    world.end(held)


def test_a_reply_belongs_to_the_iteration_that_asked_and_to_no_later_one() -> None:
    turns = DatabaseTurnStore(ttl_s=60, dispatch_child=lambda *_: "")
    item = add()

    def ask_and_reply(answer: str) -> Lease:
        world.end(claim(item), Verb.SUSPEND, code="input", question="which?")
        question = Question.objects.get(work_item=item, answered_at=None)
        world.authority().transitions.reply(question.pk, answer=answer, by="me")
        return claim(item)

    lease = ask_and_reply("a")
    assert turns.reply(lease) == "a"
    STORE.commit(lease, done(1))
    assert turns.reply(lease) is None, "the next iteration has asked nobody"
    world.end(lease, Verb.HANDBACK)
    lease = ask_and_reply("b")
    assert turns.reply(lease) == "b"
    world.rescue(lease)
    assert turns.reply(claim(item)) == "b", "it was not used up"


def test_a_step_of_the_longest_name_fits_beside_the_number_of_its_iteration() -> None:
    turns = DatabaseTurnStore(ttl_s=60, dispatch_child=lambda *_: "")
    item = add()
    name = f"10000:{'x' * 200}"
    turns.step_save(claim(item), name, 1)
    assert StepResult.objects.get(work_item=item).name == name


def test_a_goal_without_a_number_has_ten_iterations_and_its_row_goes_with_a_job_that_is_removed() -> None:
    item = add(goal={"max_iterations": None})
    assert goal_of(item).max_iterations == 10
    lease = claim(item)
    STORE.commit(lease, done(1, passed=True))
    world.end(lease)
    WorkItem.objects.filter(pk=item.pk).update(finished_at=store_now())
    world.authority().removal.jobs({item.pk: world.fresh(item).epoch}, keep_turns=0, allowed=lambda: True)
    assert not Goal.objects.filter(work_item_id=item.pk).exists()
    assert not GoalIteration.objects.filter(work_item_id=item.pk).exists()
