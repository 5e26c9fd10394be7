"""When ended runs are taken for settlement."""

from __future__ import annotations

import threading
import time

from dispatch.outcomes import LeaseGone, Succeeded
from dispatch.worker.settlement import GROUP_DELAY_S, Finished, Slot, settlement_of
from tests.dispatch.worker.parts import WAIT_S, slot

DONE = Succeeded(result=1, state={})


def test_when_all_that_runs_has_ended_nothing_is_waited_for() -> None:
    finished, only = Finished(8), slot()
    finished.add(only, DONE)
    began = time.monotonic()
    assert finished.take(in_flight=1, timeout_s=WAIT_S) == [(only, DONE)]
    assert time.monotonic() - began < WAIT_S / 2
    assert finished.take(in_flight=0, timeout_s=0) == []


def test_the_first_of_many_waits_a_moment_for_company_and_no_longer() -> None:
    finished = Finished(8)
    began = time.monotonic()
    finished.add(slot(), DONE)
    assert len(finished.take(in_flight=8, timeout_s=WAIT_S)) == 1
    assert GROUP_DELAY_S * 0.9 <= time.monotonic() - began < WAIT_S / 2


def test_half_of_the_capacity_is_enough() -> None:
    finished = Finished(4)
    finished.add(slot(), DONE)
    timer = threading.Timer(0.001, lambda: finished.add(slot(), DONE))
    timer.start()
    taken = finished.take(in_flight=4, timeout_s=WAIT_S)
    timer.join()
    taken += finished.take(in_flight=4, timeout_s=0)
    assert len(taken) == 2


def short() -> Slot:
    made = slot()
    made.run.run_s = 0.0001
    return made


def test_short_turns_that_began_together_are_taken_together() -> None:
    finished = Finished(2)
    finished.add(short(), DONE)
    timer = threading.Timer(0.001, lambda: finished.add(short(), DONE))
    timer.start()
    assert len(finished.take(in_flight=2, fresh=2, timeout_s=WAIT_S)) == 2
    timer.join()


def test_who_began_with_short_turns_and_is_longer_holds_them_up_for_a_moment_only() -> None:
    finished = Finished(4)
    began = time.monotonic()
    finished.add(short(), DONE)
    assert len(finished.take(in_flight=2, fresh=2, timeout_s=WAIT_S)) == 1
    assert GROUP_DELAY_S * 0.9 <= time.monotonic() - began < WAIT_S / 2
    began = time.monotonic()
    finished.add(short(), DONE)
    assert len(finished.take(in_flight=2, fresh=1, timeout_s=WAIT_S)) == 1
    assert time.monotonic() - began < WAIT_S / 2


def test_a_wake_up_ends_the_wait_with_nothing_and_counts_once() -> None:
    finished = Finished(1)
    timer = threading.Timer(0.01, finished.wake)
    timer.start()
    began = time.monotonic()
    assert finished.take(in_flight=1, timeout_s=WAIT_S) == []
    assert time.monotonic() - began < WAIT_S / 2
    timer.join()
    began = time.monotonic()
    assert finished.take(in_flight=1, timeout_s=0.02) == []
    assert time.monotonic() - began >= 0.02


def test_a_run_whose_lease_is_gone_has_nothing_to_settle() -> None:
    assert settlement_of(slot(), LeaseGone()) is None
    written = settlement_of(slot(), DONE)
    assert written is not None
    assert (written.verb, written.result) == ("succeeded", 1)
