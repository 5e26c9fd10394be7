"""When a call is sent again, when not, and what it raises in the end."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from dispatch.client import (
    ApiError,
    BadAnswer,
    ClientMisuse,
    ConnectionLost,
    JobFailed,
    JobUnfinished,
    NotFound,
    QueueFull,
    StoreUnavailable,
    calls,
    programs,
)
from dispatch.client.errors import CLASSES, error_of
from dispatch.client.programs import Lost
from tests.dispatch.client.hand import Clock, Hand, answered, refused

JOB = "orch-" + "1" * 32
HANDLE = {"job_id": JOB, "session_id": "s", "kind": "orchestrator_task"}
AWAY = refused(503, "store_unavailable")
CUT, UNREACHED = Lost(why="cut", sent=True), Lost(why="unreached", sent=False)


def test_a_dispatch_is_repeated_with_one_key_until_it_is_answered() -> None:
    clock = Clock()
    hand = Hand(clock, [AWAY, CUT, UNREACHED, answered({**HANDLE, "replayed": True})])
    handle = hand.run(programs.dispatch("t", {}, clock.patience()))
    assert (handle.job_id, handle.session_id, handle.replayed) == (JOB, "s", True)
    bodies = [step.call.body for step in hand.asked]
    assert len(bodies) == 4
    assert all(body == bodies[0] for body in bodies)
    assert bodies[0]["idempotency_key"].startswith("client-")
    assert hand.paused == [0.2, 0.4, 0.8], "each pause is longer"


def test_each_dispatch_has_a_key_of_its_own_and_the_callers_key_stays() -> None:
    keys = {calls.dispatch("t", {}).body["idempotency_key"] for _ in range(3)}  # type: ignore[index]
    assert len(keys) == 3
    assert calls.dispatch("t", {"idempotency_key": "mine"}).body["idempotency_key"] == "mine"  # type: ignore[index]
    many = calls.dispatch_many([{"task": "a"}, {"task": "b", "idempotency_key": "k"}]).body
    assert many is not None
    assert [job["idempotency_key"] == "k" for job in many["jobs"]] == [False, True]
    assert all(job["idempotency_key"] for job in many["jobs"])


def test_retry_after_is_waited_for() -> None:
    clock = Clock()
    hand = Hand(clock, [refused(429, "queue_full", retry_after="5"), answered(HANDLE)])
    hand.run(programs.dispatch("t", {}, clock.patience()))
    assert hand.paused == [5.0]


@pytest.mark.parametrize(
    ("told", "raised"),
    [(AWAY, StoreUnavailable), (CUT, ConnectionLost), (refused(429, "queue_full", retry_after="4"), QueueFull)],
)
def test_when_the_patience_is_over_the_last_failure_is_raised(told: Any, raised: type[Exception]) -> None:
    clock = Clock()
    hand = Hand(clock, [told] * 100)
    with pytest.raises(raised):
        hand.run(programs.dispatch("t", {}, clock.patience(for_s=20)))
    assert 10 < clock.now <= 20


def test_who_asks_for_more_time_than_there_is_is_not_waited_for() -> None:
    clock = Clock()
    hand = Hand(clock, [refused(429, "rate_limited", retry_after="61")])
    with pytest.raises(ApiError) as caught:
        hand.run(programs.tried(calls.status(JOB), clock.patience()))
    assert caught.value.retry_after_s == 61
    assert hand.paused == []


@pytest.mark.parametrize(
    "call",
    [calls.retry(JOB, None), calls.session_reply("s", "x", None)],
    ids=["retry", "reply"],
)
def test_what_would_be_done_twice_is_not_sent_twice(call: Any) -> None:
    for told in (CUT, AWAY):
        clock = Clock()
        hand = Hand(clock, [told])
        with pytest.raises((ConnectionLost, StoreUnavailable)):
            hand.run(programs.tried(call, clock.patience()))
    clock = Clock()
    hand = Hand(clock, [UNREACHED, refused(429, "queue_full"), answered({})])
    assert hand.run(programs.tried(call, clock.patience())) == {}, "what did not arrive, or was refused, may go again"


@pytest.mark.parametrize("code", sorted(CLASSES))
def test_each_code_is_a_class_with_all_that_rest_says(code: str) -> None:
    kind = CLASSES[code]
    clock = Clock()
    hand = Hand(clock, [refused(kind.usual_status, code, task="is missing")] * 2)
    with pytest.raises(kind) as caught:
        hand.run(programs.tried(calls.retry(JOB, None), clock.patience(for_s=0)))
    error = caught.value
    assert (error.code, error.message, error.fields) == (code, f"it is {code}", {"task": "is missing"})
    assert error.status == kind.usual_status


def test_an_unknown_code_keeps_its_name() -> None:
    error = error_of({"status": "error", "code": "new", "message": "m", "fields": {}}, status=418)
    assert error is not None
    assert (type(error), error.code, error.status) == (ApiError, "new", 418)


def test_an_unknown_job_is_not_found() -> None:
    clock = Clock()
    hand = Hand(clock, [answered({"status": "not_found", "error": "Job x not found"}, 404)])
    with pytest.raises(NotFound, match="Job x not found"):
        hand.run(programs.tried(calls.status("x"), clock.patience()))


@pytest.mark.parametrize(("status", "body"), [(200, b"<html>"), (301, b""), (404, b"<html>"), (204, b"")])
def test_what_is_no_answer_of_this_api_is_said_to_be_none(status: int, body: bytes) -> None:
    clock = Clock()
    hand = Hand(clock, [programs.Reply(status=status, body=body)])
    with pytest.raises(BadAnswer):
        hand.run(programs.tried(calls.status(JOB), clock.patience()))


def test_evidence_that_is_not_ready_is_an_answer_and_a_refusal_is_none() -> None:
    clock = Clock()
    hand = Hand(clock, [AWAY, answered({"evidence": {"ready": False}}, 503)])
    assert hand.run(programs.tried(calls.health(), clock.patience())) == {"evidence": {"ready": False}}
    assert len(hand.asked) == 2


def test_each_of_many_has_its_own_answer() -> None:
    clock = Clock()
    full = {"status": "error", "code": "queue_full", "message": "full", "fields": {}}
    hand = Hand(clock, [answered({"jobs": [HANDLE, full]}, 202)])
    first, second = hand.run(programs.dispatch_many([{"task": "a"}, {"task": "b"}], clock.patience()))
    assert first.job_id == JOB
    assert isinstance(second, QueueFull)
    assert second.status == 429


def test_an_inline_dispatch_has_a_handle_too() -> None:
    clock = Clock()
    hand = Hand(clock, [answered(f"Task dispatched. Job ID: {JOB}")])
    assert hand.run(programs.dispatch("t", {}, clock.patience())).job_id == JOB


def test_waiting_goes_on_over_the_bound_of_one_request() -> None:
    clock = Clock()
    state = {"kind": "orchestrator_task", "status": "running", "payload_ref": JOB}
    hand = Hand(clock, [answered(state), answered(state), answered({**state, "status": "failed"})])
    assert hand.run(programs.wait(JOB, None, clock.patience()))["status"] == "failed"
    assert [step.call.body["timeout_s"] for step in hand.asked] == [calls.WAIT_S] * 3
    assert all(step.call.read_s > calls.WAIT_S for step in hand.asked)


def test_a_wait_of_no_time_answers_where_the_job_stands() -> None:
    clock = Clock()
    state = {"kind": "orchestrator_task", "status": "running", "payload_ref": JOB}
    assert Hand(clock, [answered(state)]).run(programs.wait(JOB, 0, clock.patience())) == state


def outcome(status: str, error: object = None) -> list[Any]:
    body = {"job_id": JOB, "status": status, "result": 7, "error": error, "attempt": 1, "finished_at": None}
    return [answered({"kind": "orchestrator_task", "status": status, "payload_ref": JOB}), answered(body)]


def test_a_result_is_what_the_agent_returned() -> None:
    clock = Clock()
    assert Hand(clock, outcome("succeeded")).run(programs.result(JOB, 1, clock.patience())) == 7


def test_a_job_that_failed_raises_why() -> None:
    clock = Clock()
    hand = Hand(clock, outcome("dead_letter", {"code": "agent_error", "message": "ValueError: boom"}))
    with pytest.raises(JobFailed, match="boom") as caught:
        hand.run(programs.result(JOB, None, clock.patience()))
    assert (caught.value.status, caught.value.code) == ("dead_letter", "agent_error")


def test_a_job_that_has_not_ended_in_time_raises_a_timeout() -> None:
    clock = Clock()
    with pytest.raises(TimeoutError) as caught:
        Hand(clock, outcome("suspended")).run(programs.result(JOB, 0, clock.patience()))
    assert isinstance(caught.value, JobUnfinished)
    assert caught.value.status == "suspended"


def test_a_time_is_sent_with_its_zone() -> None:
    body = calls.dispatch("t", {"run_at": datetime(2030, 1, 31, 8, tzinfo=UTC)}).body
    assert body is not None
    assert body["run_at"] == "2030-01-31T08:00:00+00:00"
    with pytest.raises(ClientMisuse, match="run_at"):
        calls.dispatch("t", {"run_at": datetime(2030, 1, 31)})  # noqa: DTZ001
