"""Why is my turn not running? Every reason in words that name what is in the way."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dispatch import states
from dispatch.clock import store_now
from dispatch.explaining import CLAIMABLE, explain
from dispatch.models import ClaimGate, DispatchWorker, WorkItem
from dispatch.states import Refusal, Verb
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

Case = tuple[str, str, str | None]  # reason, detail as a pattern, the job in the way


def told(item: WorkItem) -> Case:
    answer = explain(world.fresh(item))
    assert answer.keys() == {"runnable", "reason", "detail", "blocked_by", "since"}
    assert answer["runnable"] == (answer["reason"] == CLAIMABLE)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", answer["since"])
    return answer["reason"], answer["detail"], answer["blocked_by"]


def live_worker(
    *agents: str, age_s: float = 1, draining: bool = False, kinds: Any = (states.ORCHESTRATOR_TASK,)
) -> None:
    at = store_now() - timedelta(seconds=age_s)
    name = uuid.uuid4().hex
    DispatchWorker.objects.create(
        worker_id=f"host:{name}:agent-dispatch:0",
        token=name,
        host="host",
        pid=1,
        capacity=1,
        active_sessions=[],
        queue_backend="SQLiteQueueBackend",
        version="1",
        agents=list(agents),
        kinds=list(kinds),
        draining=draining,
        started_at=at,
        last_heartbeat=at,
    )


@pytest.mark.parametrize("verb", [Verb.SUCCEEDED, Verb.FAILED, Verb.CANCELLED, Verb.DEAD_LETTER])
def test_what_has_ended_says_how(verb: str) -> None:
    item = world.run(world.add(), verb, code="agent_error")
    assert told(item) == (Refusal.TERMINAL, f"it has ended as {verb}", None)


def test_what_runs_says_so_and_that_it_was_asked_to_stop() -> None:
    item = world.add()
    world.claim_item(item)
    reason, detail, blocked_by = told(item)
    lease = r"; its lease lasts \d+ s if nobody renews it"
    assert (reason, blocked_by) == (Refusal.LEASED_ELSEWHERE, None)
    assert re.fullmatch(f"it runs on a worker, attempt 1{lease}", detail)
    world.authority().transitions.cancel([item.pk], code="cancelled")
    assert re.fullmatch(f"it runs on a worker, attempt 1, and was asked to stop{lease}", told(item)[1])


def test_a_lease_that_ran_out_says_that_another_takes_the_turn() -> None:
    item = world.add()
    world.claim_item(item)
    WorkItem.objects.filter(pk=item.pk).update(lease_expires_at=store_now() - timedelta(seconds=30))
    assert re.search(r"; its lease ended (29|30|31) s ago, and the next tick gives the turn to another$", told(item)[1])


def test_a_question_is_named_with_its_words() -> None:
    item = world.run(world.add(), Verb.SUSPEND, code="input", question="left or right?")
    following = world.add()
    assert told(item) == (Refusal.SUSPENDED, 'it is suspended: waits for an answer to "left or right?"', None)
    assert told(following) == (
        Refusal.BEHIND_TURN,
        'behind turn 1 of session s, which waits for an answer to "left or right?"',
        item.job_id,
    )


def test_children_are_what_a_suspended_parent_waits_for() -> None:
    child = world.add("child")
    item = world.run(world.add(), Verb.SUSPEND, code="children", wait_for=(child.job_id,))
    assert told(item) == (Refusal.SUSPENDED, "it is suspended: waits for its child jobs", None)


def test_a_deadline_that_has_passed_is_said() -> None:
    item = world.add()
    world.pass_deadline(item)
    reason, detail, _ = told(item)
    assert reason == Refusal.EXPIRED
    assert re.fullmatch(r"its deadline passed \d+ s ago; it is about to be cancelled", detail)


def test_the_first_unfinished_parent_is_named() -> None:
    done, parent = world.run(world.add("a")), world.add("b")
    item = world.add(dependencies=[done.job_id, parent.job_id])
    following = world.add()
    expected = f"it waits for job {parent.job_id} to succeed"
    assert told(item) == (Refusal.WAITING_DEPENDENCY, expected, parent.job_id)
    assert told(following) == (
        Refusal.BEHIND_TURN,
        f"behind turn 1 of session s, which waits for job {parent.job_id}",
        item.job_id,
    )


def _runs(head: WorkItem) -> None:
    world.claim_item(head)


def _retries(head: WorkItem) -> None:
    world.run(head, Verb.RETRY, delay_s=40.0, code="agent_error")


def _pauses(head: WorkItem) -> None:
    world.authority().transitions.pause([head.session_id], by="me", reason="")


@pytest.mark.parametrize(
    ("act", "doing"),
    [
        (lambda head: None, "has not started yet"),
        (_runs, "is running"),
        (_retries, r"retries in (39|40) s"),
        (_pauses, "is held by the session's pause"),
    ],
    ids=["queued", "running", "retrying", "paused"],
)
def test_a_turn_behind_another_says_what_that_one_does(act: Callable[[WorkItem], None], doing: str) -> None:
    head, item = world.add(), world.add()
    act(head)
    reason, detail, blocked_by = told(item)
    assert (reason, blocked_by) == (Refusal.BEHIND_TURN, head.job_id)
    assert re.fullmatch(f"behind turn 1 of session s, which {doing}", detail)


def test_a_pause_says_who_and_why() -> None:
    item = world.add()
    world.authority().transitions.pause([item.session_id], by="ops", reason="deploy")
    reason, detail, _ = told(item)
    assert reason == Refusal.SESSION_PAUSED
    assert re.fullmatch(r"session s was paused by ops \d+ s ago: deploy", detail)


@pytest.mark.parametrize(
    ("scope", "name", "words"),
    [
        ("fleet", "", "claiming is paused for the whole fleet"),
        ("kind", "orchestrator_task", "claiming is paused for kind orchestrator_task"),
        ("agent", "echo", "claiming is paused for agent echo"),
        ("tenant", "t1", "claiming is paused for tenant t1"),
    ],
)
def test_a_gate_says_what_it_shuts(scope: str, name: str, words: str) -> None:
    item, behind = world.add(), world.add()
    live_worker("echo")
    at = store_now() - timedelta(minutes=3)
    ClaimGate.objects.create(scope=scope, name=name, set_at=at, set_by="ops", reason="deploy")
    ClaimGate.objects.create(scope="agent", name="another", set_at=at)
    assert told(item) == (Refusal.SESSION_PAUSED, f"{words} by ops 3 min ago: deploy", None)
    assert told(behind)[1] == f"behind turn 1 of session s, which waits, because {words} by ops 3 min ago: deploy"


def test_a_time_that_has_not_come_is_said_in_seconds_minutes_or_hours() -> None:
    for delay, words in ((90, r"(89|90) s"), (3_000, r"(49|50) min"), (50_000, "13 h")):
        item = world.add(f"s{delay}", run_at=store_now() + timedelta(seconds=delay))
        reason, detail, _ = told(item)
        assert reason == Refusal.NOT_DUE
        assert re.fullmatch(rf"it is due in {words}(, at \d{{4}}-\d\d-\d\d \d\d:\d\d UTC)?", detail)
        assert ("UTC" in detail) == (delay > 7200)
    item = world.run(world.add(), Verb.RETRY, delay_s=90.0, code="agent_error")
    assert re.fullmatch(r"it retries in (89|90) s", told(item)[1])


def test_workers_that_cannot_run_it_are_told_apart() -> None:
    item = world.add()
    assert told(item) == (Refusal.NO_AGENT, "no worker is live", None)
    live_worker("echo", age_s=10_000)
    live_worker("echo", draining=True)
    assert told(item) == (Refusal.NO_AGENT, "no worker is live", None)
    live_worker("echo", kinds=["goal_loop"])
    assert told(item) == (Refusal.NO_AGENT, "no live worker runs jobs of kind orchestrator_task", None)
    live_worker("other")
    assert told(item) == (Refusal.NO_AGENT, "no live worker has the agent echo", None)
    live_worker("echo", "other")
    assert told(item) == (CLAIMABLE, "it is ready and waits for a free slot; 1 live consumers run its agent", None)
