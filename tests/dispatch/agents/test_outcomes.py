"""What is written for what a run returned."""

from __future__ import annotations

from typing import Any

import pytest

from dispatch.outcomes import (
    AgentFailed,
    CancelledRun,
    ChildrenAwaited,
    Discarded,
    HandedBack,
    InputAsked,
    RetryAsked,
    Snoozed,
    Succeeded,
    TimedOut,
    Writable,
    settlement_for,
)
from dispatch.ports import Settlement
from dispatch.retry import RetryPolicy
from tests.dispatch.agents.turn_store import lease


def settled(outcome: Writable, **changes: Any) -> Settlement:
    return settlement_for(lease(**changes), outcome, RetryPolicy(), 1.0)


def test_a_success_writes_result_and_state() -> None:
    done = settled(Succeeded(result={"a": 1}, state={"n": 2}, message="fine"))
    assert (done.verb, done.result, done.state, done.message) == ("succeeded", {"a": 1}, {"n": 2}, "fine")
    assert done.code is None


def test_a_state_that_says_what_it_said_before_is_not_written_again() -> None:
    before = {"n": 1, "words": ["a"]}
    same = settled(Succeeded(result=None, state={"n": 1, "words": ["a"]}), state=before)
    assert (same.verb, same.state) == ("succeeded", None)
    assert settled(Succeeded(result=None, state={}), state=before).state == {}


@pytest.mark.parametrize(("before", "after"), [(1, True), (0, False), (1, 1.0), (False, 0)])
def test_a_value_that_python_takes_for_its_equal_is_a_change_of_state(before: Any, after: Any) -> None:
    written = settled(Succeeded(result=None, state={"n": after}), state={"n": before}).state
    assert written is not None
    assert type(written["n"]) is type(after)


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (AgentFailed(message="E: x"), "agent_error"),
        (TimedOut(message="long"), "timeout"),
        (RetryAsked(), "agent_error"),
    ],
)
def test_a_failed_attempt_is_retried_until_the_last_is_used_up(outcome: Writable, code: str) -> None:
    again = settled(outcome, attempt=2)
    assert (again.verb, again.code, again.delay_s) == ("retry", code, 10.0)
    assert again.state is None
    dead = settled(outcome, attempt=3)
    assert (dead.verb, dead.code, dead.delay_s) == ("dead_letter", code, None)
    assert dead.message


def test_retry_after_says_when_and_nought_means_now() -> None:
    assert settled(RetryAsked(after_s=42.0)).delay_s == 42.0
    assert settled(RetryAsked(after_s=0.0)).delay_s == 0.0


def test_a_snooze_on_the_last_attempt_still_comes_back() -> None:
    later = settled(Snoozed(after_s=3.0), attempt=3)
    assert (later.verb, later.delay_s) == ("snooze", 3.0)


def test_discard_fails_at_once() -> None:
    ended = settled(Discarded(reason="no use"))
    assert (ended.verb, ended.code, ended.message) == ("failed", "discarded", "no use")


def test_a_question_and_children_suspend() -> None:
    asked = settled(InputAsked(question="which?", choices=("a", "b")))
    assert (asked.verb, asked.code, asked.question, asked.choices) == ("suspend", "input", "which?", ("a", "b"))
    waits = settled(ChildrenAwaited(job_ids=["orch-1"]))
    assert (waits.verb, waits.code, waits.wait_for) == ("suspend", "children", ("orch-1",))


@pytest.mark.parametrize("code", ["cancelled", "expired"])
def test_a_stopped_run_is_cancelled_with_its_reason(code: str) -> None:
    ended = settled(CancelledRun(code=code, message="why"))
    assert (ended.verb, ended.code, ended.message) == ("cancelled", code, "why")


def test_a_hand_back_uses_no_attempt() -> None:
    assert settled(HandedBack(message="bye"), attempt=3).verb == "handback"


def test_a_state_over_its_limit_fails_the_turn_and_names_the_size() -> None:
    fits = {"x": "ä" * ((256 * 1024 - len('{"x":""}')) // 2)}
    assert settled(Succeeded(result=None, state=fits)).verb == "succeeded"
    over = settled(Succeeded(result="r", state={"x": fits["x"] + "a"}))
    assert (over.verb, over.code, over.state, over.result) == ("failed", "agent_error", None, None)
    assert "262145 bytes" in (over.message or "")


def test_a_message_is_cut_to_four_kib_of_whole_characters() -> None:
    message = settled(AgentFailed(message="€" * 5000)).message or ""
    assert len(message.encode()) <= 4096
    assert message.endswith("€…")
