"""What callers may do, over the real authority and store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from dispatch import selectors, services, states, wiring
from dispatch.access import Caller
from dispatch.errors import (
    DispatchError,
    Forbidden,
    IdempotencyConflict,
    Invalid,
    JobNotFound,
    LeaseLost,
    NoQuestion,
    NotRetryable,
    QueueFull,
    SessionBusy,
    SessionExists,
    SessionNotFound,
    WorkerNotFound,
)
from dispatch.models import Question, WorkItem
from dispatch.specs import DispatchSpec
from dispatch.states import Verb
from sessions_app.models import AuditEntry, Session
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

ALL = frozenset({"read", "dispatch", "operate"})
MINE = Caller(tenant="t1", name="me", kind="api_key", scopes=ALL, request_id="r-1")
THEIRS = Caller(tenant="t2", name="they", kind="api_key", scopes=ALL)


def spec(**body: Any) -> DispatchSpec:
    return DispatchSpec.parse({"task": "do it", "agent_name": "echo", **body})


def dispatch(caller: Caller = MINE, **body: Any) -> services.DispatchResult:
    return services.job_dispatch(caller=caller, spec=spec(**body))


def item_of(result: services.DispatchResult) -> WorkItem:
    return WorkItem.objects.get(job_id=result.handle["job_id"])


def audited() -> list[tuple[str, str, str]]:
    return list(AuditEntry.objects.order_by("id").values_list("verb", "object_id", "result"))


# -- dispatch ----------------------------------------------------------------------------------------------------------
def test_a_handle_has_exactly_its_shape_and_a_job_without_a_session_is_its_own() -> None:
    result = dispatch()
    job = result.handle["job_id"]
    assert result.handle == {
        "job_id": job,
        "session_id": job,
        "kind": "orchestrator_task",
        "dispatch": "queued",
        "status": "pending",
        "status_url": "/api/graph/jobs",
        "status_request": {"action": "status", "job_id": job},
    }
    assert (result.replayed, result.coalesced, result.inline) == (False, False, None)


def test_a_repeated_key_answers_with_the_same_handle_and_another_tenants_with_its_own_job() -> None:
    first = dispatch(idempotency_key="k", session_id="s")
    again = dispatch(idempotency_key="k", session_id="s")
    assert (again.handle, again.replayed) == (first.handle, True)
    theirs = dispatch(THEIRS, idempotency_key="k", session_id="s")
    assert not theirs.replayed
    assert theirs.handle["job_id"] != first.handle["job_id"]
    assert WorkItem.objects.count() == 2


@pytest.mark.parametrize(
    ("other", "fields"),
    [
        ({"task": "something else"}, {"task"}),
        ({"payload": {"n": 1}, "priority": "high"}, {"payload", "priority"}),
        ({"kind": "goal_loop"}, {"kind"}),
    ],
    ids=["task", "two fields", "kind"],
)
def test_a_repeated_key_with_another_body_is_a_conflict_that_names_the_fields(
    other: dict[str, Any], fields: set[str]
) -> None:
    item = item_of(dispatch(idempotency_key="k"))
    before = WorkItem.objects.filter(pk=item.pk).values().get()
    with pytest.raises(IdempotencyConflict) as refusal:
        dispatch(idempotency_key="k", **other)
    assert set(refusal.value.fields) == fields
    assert WorkItem.objects.filter(pk=item.pk).values().get() == before
    assert WorkItem.objects.count() == 1


def test_fifty_posts_of_one_key_at_once_make_one_job_and_fifty_equal_handles() -> None:
    start, answers = threading.Barrier(50), []

    def post() -> None:
        try:
            start.wait(30)
            answers.append(dispatch(idempotency_key="k", session_id="s"))
        finally:
            connection.close()

    threads = [threading.Thread(target=post) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(answers) == 50
    assert len({answer.handle["job_id"] for answer in answers}) == 1
    assert sum(not answer.replayed for answer in answers) == 1
    assert WorkItem.objects.count() == 1
    world.check()


def test_an_agent_that_nobody_has_announced_is_refused_by_name() -> None:
    with pytest.raises(Invalid) as refusal:
        dispatch(agent_name="nobody-has-this")
    assert list(refusal.value.fields) == ["agent_name"]
    assert not WorkItem.objects.exists()


def test_many_answers_come_in_order_and_one_bad_body_stops_no_other() -> None:
    first = dispatch(idempotency_key="k")
    bad = Invalid("no", fields={"task": "is missing"})
    answers = services.job_dispatch_many(
        caller=MINE,
        specs=[
            spec(session_id="s", task="1"),
            bad,
            spec(idempotency_key="k"),
            spec(idempotency_key="k", task="other"),
            spec(dependencies=["orch-" + "0" * 32]),
            spec(agent_name="nobody-has-this"),
            spec(session_id="s", task="2"),
            spec(session_id="s", on_busy="reject"),
            spec(session_id="s", task="3", on_busy="coalesce"),
        ],
    )
    codes = [answer.get("code") or answer["status"] for answer in answers]
    assert codes[:4] == ["pending", "invalid", "pending", "idempotency_conflict"]
    assert codes[4:] == ["invalid", "invalid", "pending", "session_busy", "pending"]
    assert answers[1] == {"status": "error", "code": "invalid", "message": "no", "fields": {"task": "is missing"}}
    assert answers[2] == {**first.handle, "replayed": True}
    assert answers[8]["coalesced"] is True
    assert answers[8]["job_id"] == answers[6]["job_id"]
    tasks = WorkItem.objects.filter(session__session_id="s").order_by("session_seq").values_list("task", flat=True)
    assert list(tasks) == ["1", "3"]
    world.check()


def test_many_count_against_the_bound_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = world.authority(max_depth=2)
    monkeypatch.setattr(wiring, "authority", lambda: bounded)
    answers = services.job_dispatch_many(caller=MINE, specs=[spec() for _ in range(4)])
    assert sorted(answer.get("code", "") for answer in answers) == ["", "", "queue_full", "queue_full"]
    with pytest.raises(QueueFull):
        dispatch()
    assert WorkItem.objects.count() == Session.objects.count() == 2
    world.check()


def test_a_dispatch_in_a_transaction_that_rolls_back_never_was() -> None:
    with world.undone():
        dispatch(session_id="s")
    assert not WorkItem.objects.exists()
    assert not Session.objects.exists()
    assert world.queue_rows() == {}


# -- inline ------------------------------------------------------------------------------------------------------------
@pytest.fixture
def inline(settings: Settings) -> None:
    settings.FLEETSITE = settings.FLEETSITE.model_copy(update={"agent_dispatch_backend": "inline"})


@pytest.mark.usefixtures("inline")
def test_inline_runs_the_job_in_the_call_and_answers_with_a_sentence() -> None:
    result = dispatch(session_id="s")
    assert result.inline == f"Task dispatched. Job ID: {result.handle['job_id']}"
    assert item_of(result).status == states.SUCCEEDED
    assert world.events(item_of(result)) == ["submitted", "running", "succeeded"]
    world.check()


@pytest.mark.usefixtures("inline")
def test_inline_refuses_a_busy_session_a_later_time_and_dependencies() -> None:
    busy = world.add("s")
    with pytest.raises(SessionBusy):
        dispatch(session_id="s")
    later: list[dict[str, Any]] = [{"run_at": "2999-01-01T00:00:00Z"}, {"dependencies": [busy.job_id]}]
    for late in later:
        with pytest.raises(Invalid) as refusal:
            dispatch(**late)
        assert set(refusal.value.fields) == set(late)
    assert WorkItem.objects.count() == 1


@pytest.mark.usefixtures("inline")
def test_inline_rescues_a_turn_whose_process_died_before_it_calls_the_session_busy() -> None:
    item = world.add("s", max_attempts=1)
    world.lapse(world.claim_item(item))
    assert item_of(dispatch(session_id="s")).status == states.SUCCEEDED
    assert world.fresh(item).status == states.DEAD_LETTER


# -- a job's life ------------------------------------------------------------------------------------------------------
def test_a_cancel_tells_whether_it_is_done_requested_or_too_late_and_is_audited() -> None:
    queued, running = item_of(dispatch()), item_of(dispatch())
    world.claim_item(running)
    ended = world.run(item_of(dispatch()))
    for item, how, status in (
        (queued, "done", "cancelled"),
        (running, "requested", "running"),
        (ended, "too_late", "succeeded"),
    ):
        answer = services.job_cancel(caller=MINE, job_id=item.job_id, reason="enough")
        assert answer == {"job_id": item.job_id, "status": status, "cancel": how}
        assert audited()[-1] == ("cancel", item.job_id, how)
    entry = AuditEntry.objects.order_by("-id").first()
    assert entry is not None
    assert (entry.actor, entry.tenant, entry.reason, entry.request_id) == ("me", "t1", "enough", "r-1")


def test_a_retry_answers_with_the_handle_and_may_set_a_deadline() -> None:
    item = world.run(item_of(dispatch(session_id="s")), Verb.FAILED, code="agent_error")
    deadline = datetime.now(UTC) + timedelta(seconds=60)
    handle = services.job_retry(caller=MINE, job_id=item.job_id, deadline=deadline)
    assert (handle["job_id"], handle["session_id"], handle["status"]) == (item.job_id, "s", "pending")
    kept = world.fresh(item).deadline
    assert kept is not None
    assert abs((kept - deadline).total_seconds()) < 2
    with pytest.raises(NotRetryable):
        services.job_retry(caller=MINE, job_id=item.job_id)


@pytest.mark.parametrize("verb", ["cancel", "retry"])
def test_another_tenants_job_is_not_found_unchanged_and_audited(verb: str) -> None:
    item = world.run(item_of(dispatch()), Verb.FAILED, code="agent_error")
    before = WorkItem.objects.filter(pk=item.pk).values().get()
    act: Callable[..., object] = services.job_cancel if verb == "cancel" else services.job_retry
    with pytest.raises(JobNotFound):
        act(caller=THEIRS, job_id=item.job_id)
    assert WorkItem.objects.filter(pk=item.pk).values().get() == before
    assert audited() == [(verb, item.job_id, "not_found")]
    assert AuditEntry.objects.get().tenant == "t2"


# -- children ----------------------------------------------------------------------------------------------------------
def test_a_child_is_found_again_by_its_parent_and_key_and_is_refused_to_who_has_lost_the_turn() -> None:
    lease = world.claim_item(world.add(max_attempts=9))
    body = {"task": "part", "agent_name": "echo"}
    child = services.child_dispatch(lease=lease, job_key="a", body=body)
    assert services.child_dispatch(lease=lease, job_key="a", body=body) == child
    assert services.child_dispatch(lease=lease, job_key="b", body=body) != child
    world.rescue(lease)
    with pytest.raises(LeaseLost):
        services.child_dispatch(lease=lease, job_key="c", body=body)
    again = world.claim_item(WorkItem.objects.get(pk=lease.item_id), "w2")
    assert services.child_dispatch(lease=again, job_key="a", body=body) == child
    children = WorkItem.objects.filter(parent_item_id=lease.item_id)
    assert children.count() == 2
    assert set(children.values_list("tenant", flat=True)) == {"t1"}
    world.check()


# -- sessions ----------------------------------------------------------------------------------------------------------
def test_a_session_is_opened_once_with_its_memory_and_its_first_turn_sees_it() -> None:
    opened = services.session_open(caller=MINE, session_id="s", metadata={"domain": "d"}, state={"n": 1})
    assert (opened["status"], opened["domain"], opened["state"], opened["turns"]) == ("idle", "d", {"n": 1}, 0)
    with pytest.raises(SessionExists):
        services.session_open(caller=MINE, session_id="s", metadata={}, state={})
    services.session_open(caller=THEIRS, session_id="s", metadata={}, state={})
    assert world.claim_item(item_of(dispatch(session_id="s"))).state == {"n": 1}


def _asks(**more: Any) -> WorkItem:
    return world.run(item_of(dispatch(session_id="s")), Verb.SUSPEND, code="input", question="which?", **more)


def test_a_reply_lets_the_turn_go_on_and_a_second_one_finds_no_question() -> None:
    item = _asks()
    answer = services.session_reply(caller=MINE, session_id="s", text="this", choice=None)
    assert answer == {"session_id": "s", "job_id": item.job_id, "status": "pending"}
    question = Question.objects.get()
    assert (question.answer, question.answered_by) == ("this", "me")
    with pytest.raises(NoQuestion):
        services.session_reply(caller=MINE, session_id="s", text="that", choice=None)


@pytest.mark.parametrize(
    ("choices", "text", "choice", "field"),
    [
        (["a", "b"], None, "c", "choice"),
        (["a", "b"], "a", None, "choice"),
        (None, None, "a", "choice"),
        (None, None, None, "text"),
    ],
)
def test_a_reply_that_does_not_fit_the_question_is_refused_and_it_stays_open(
    choices: list[str] | None, text: str | None, choice: str | None, field: str
) -> None:
    item = _asks(choices=choices)
    with pytest.raises(Invalid) as refusal:
        services.session_reply(caller=MINE, session_id="s", text=text, choice=choice)
    assert list(refusal.value.fields) == [field]
    assert world.fresh(item).status == states.SUSPENDED


def test_nobody_replies_to_another_tenants_question() -> None:
    item = _asks()
    with pytest.raises(SessionNotFound):
        services.session_reply(caller=THEIRS, session_id="s", text="mine!", choice=None)
    assert world.fresh(item).status == states.SUSPENDED
    assert audited() == [("reply", "s", "not_found")]


def test_racing_replies_are_one_reply() -> None:
    _asks()
    start, answers = threading.Barrier(8), []

    def reply() -> None:
        try:
            start.wait(30)
            services.session_reply(caller=MINE, session_id="s", text="this", choice=None)
            answers.append("replied")
        except DispatchError as error:
            answers.append(error.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=reply) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == ["no_question"] * 7 + ["replied"]
    world.check()


def test_control_says_of_each_session_what_happened_and_touches_no_other_tenants() -> None:
    running, theirs = item_of(dispatch(session_id="a")), item_of(dispatch(THEIRS, session_id="b"))
    dispatch(session_id="c")
    world.claim_item(running)
    services.sessions_control(caller=MINE, verb="pause", session_ids=["c"], reason="")
    answer = services.sessions_control(caller=MINE, verb="pause", session_ids=["a", "b", "c", "d", "a"], reason="so")
    outcomes = {row["session_id"]: row["outcome"] for row in answer["results"]}
    assert outcomes == {"a": "requested", "b": "not_found", "c": "already", "d": "not_found"}
    assert answer["counts"] == {"requested": 1, "not_found": 2, "already": 1}
    assert len(answer["results"]) == 4
    assert world.session_of(theirs).desired == "run"
    assert len(audited()) == 5
    world.check()


def test_a_domain_of_many_sessions_is_killed_to_the_last() -> None:
    count = 1_500
    services.job_dispatch_many(
        caller=MINE, specs=[spec(session_id=f"s{n}", metadata={"domain": "d"}) for n in range(count)]
    )
    dispatch(session_id="other")
    answer = services.sessions_control(caller=MINE, verb="kill", domain="d", reason="mad")
    assert answer["counts"] == {"applied": count}
    left = WorkItem.objects.exclude(status=states.CANCELLED)
    assert [item.session.session_id for item in left] == ["other"]
    again = services.sessions_control(caller=MINE, verb="kill", domain="d", reason="mad")
    assert again["counts"] == {"already": count}
    world.check()


def test_a_worker_that_is_not_there_cannot_be_drained() -> None:
    with pytest.raises(Forbidden):
        services.worker_drain(caller=MINE, worker_id="nobody")
    with pytest.raises(WorkerNotFound):
        services.worker_drain(caller=replace(MINE, platform=True), worker_id="nobody")
    assert audited() == [("drain", "nobody", "not_found")]


def test_reads_and_acts_agree_on_a_whole_life() -> None:
    job = dispatch(session_id="s").handle["job_id"]
    world.run(WorkItem.objects.get(job_id=job), Verb.FAILED, code="agent_error", message="it broke")
    services.job_retry(caller=MINE, job_id=job)
    services.job_cancel(caller=MINE, job_id=job)
    shown = selectors.job_get(caller=MINE, job_id=job)
    assert (shown["status"], shown["error"]["code"]) == ("cancelled", "cancelled")
    assert [event["event"] for event in shown["events"]] == ["submitted", "running", "failed", "reopened", "cancelled"]
