"""The life of a WorkItem as a table, and what follows from it."""

from __future__ import annotations

import itertools

import pytest

from dispatch import states
from dispatch.states import QueueState, Verb

DIAGRAM = """
submitted -> ready cancelled
ready -> leased running cancelled
leased -> running ready succeeded failed cancelled dead_letter suspended
running -> ready succeeded failed cancelled dead_letter suspended
suspended -> ready cancelled
succeeded ->
failed -> ready submitted
cancelled -> ready submitted
dead_letter -> ready submitted
"""


def test_the_table_says_what_the_contract_says_and_nothing_else() -> None:
    lines = [line.partition("->") for line in DIAGRAM.strip().splitlines()]
    assert {was.strip(): frozenset(to.split()) for was, _, to in lines} == states.TRANSITIONS


def test_every_status_is_in_the_table_and_every_target_is_a_status() -> None:
    assert set(states.TRANSITIONS) == set(states.STATUSES)
    assert set().union(*states.TRANSITIONS.values()) == set(states.STATUSES)


def test_the_statuses_fall_into_groups_without_gaps_or_overlaps() -> None:
    groups = [states.TERMINAL, states.LIVE, states.QUEUED, {states.SUSPENDED}]
    assert set().union(*groups) == set(states.STATUSES)
    assert sum(map(len, groups)) == len(states.STATUSES)
    assert set(states.STATUSES) - states.TERMINAL == states.UNFINISHED
    assert states.TERMINAL - {states.SUCCEEDED} == states.RETRYABLE


def test_only_a_manual_retry_leaves_a_terminal_status_and_nothing_leaves_success() -> None:
    for status in states.TERMINAL:
        assert states.TRANSITIONS[status] == (states.QUEUED if status in states.RETRYABLE else frozenset())


def test_every_status_is_reached_from_submission_and_every_unfinished_one_can_be_cancelled() -> None:
    reached, front = {states.SUBMITTED}, {states.SUBMITTED}
    while front:
        front = set().union(*(states.TRANSITIONS[status] for status in front)) - reached
        reached |= front
    assert reached == set(states.STATUSES)
    assert all(states.CANCELLED in states.TRANSITIONS[status] for status in states.UNFINISHED)


@pytest.mark.parametrize("status", states.STATUSES)
def test_a_stored_status_and_what_callers_see_of_it_are_inverse(status: str) -> None:
    public = states.public_status(status)
    assert public in states.PUBLIC_STATUSES
    assert status in states.stored_statuses(public)


def test_callers_see_neither_leases_nor_dependencies_as_statuses() -> None:
    assert states.stored_statuses("pending") == (states.SUBMITTED, states.READY, states.LEASED)
    assert states.stored_statuses("leased") == ()
    shown = [status for public in states.PUBLIC_STATUSES for status in states.stored_statuses(public)]
    assert sorted(shown) == sorted(states.STATUSES)


def test_verbs_either_end_a_turn_or_return_it() -> None:
    verbs = {value for name, value in vars(Verb).items() if name.isupper()}
    assert verbs >= states.FINAL_VERBS | states.NO_ATTEMPT_VERBS
    assert verbs - states.FINAL_VERBS == {Verb.RETRY, Verb.SNOOZE, Verb.SUSPEND, Verb.HANDBACK}
    assert states.FINAL_VERBS == states.TERMINAL
    assert verbs - states.FINAL_VERBS - states.NO_ATTEMPT_VERBS == {Verb.RETRY}


@pytest.mark.parametrize(
    ("status", "is_head", "desired", "due_later", "expected"),
    [
        (states.READY, True, "run", False, QueueState.CLAIMABLE),
        (states.READY, True, "kill", False, QueueState.CLAIMABLE),
        (states.READY, True, "run", True, QueueState.DUE_LATER),
        (states.READY, True, "pause", False, QueueState.PAUSED),
        (states.READY, True, "pause", True, QueueState.PAUSED),
        (states.READY, False, "run", False, QueueState.BEHIND),
        (states.READY, False, "pause", True, QueueState.BEHIND),
        (states.SUBMITTED, True, "run", False, QueueState.WAITING),
        (states.SUSPENDED, True, "pause", False, QueueState.SUSPENDED),
        (states.LEASED, True, "pause", False, QueueState.CLAIMED),
        (states.RUNNING, True, "run", False, QueueState.CLAIMED),
    ],
)
def test_a_queue_row_is_a_projection_of_item_and_session(
    status: str, is_head: bool, desired: str, due_later: bool, expected: int
) -> None:
    said = states.queue_state(status=status, is_head=is_head, desired=desired, due_later=due_later)
    assert said == expected


def test_only_a_ready_head_of_a_session_that_may_run_is_claimable() -> None:
    wishes, truths = ("run", "pause", "kill"), (True, False)
    for status, is_head, desired, later in itertools.product(sorted(states.UNFINISHED), truths, wishes, truths):
        said = states.queue_state(status=status, is_head=is_head, desired=desired, due_later=later)
        free = status == states.READY and is_head and desired != "pause" and not later
        assert (said == QueueState.CLAIMABLE) == free


@pytest.mark.parametrize(
    ("status", "code", "outcome"),
    [
        (states.SUCCEEDED, None, "completed"),
        (states.FAILED, "agent_error", "failed"),
        (states.DEAD_LETTER, "worker_lost", "failed"),
        (states.CANCELLED, "cancelled", "cancelled"),
        (states.CANCELLED, "dependency", "cancelled"),
        (states.CANCELLED, "expired", "expired"),
    ],
)
def test_every_end_is_counted_under_one_outcome(status: str, code: str | None, outcome: str) -> None:
    assert states.counter_outcome(status, code) == outcome
    assert outcome in states.COUNTER_OUTCOMES
