"""Whether the broker answers: several clients tell of it, some late, and each change is said once."""

from __future__ import annotations

import logging
import time

import pytest

from dispatch.transports.kafka.client import BrokerWatch


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, logger="dispatch.kafka")
    return caplog


def test_however_many_tell_of_a_loss_it_is_said_once_and_so_is_its_end(said: pytest.LogCaptureFixture) -> None:
    watch = BrokerWatch()
    for _ in range(3):
        watch.lost(asked=time.monotonic())
    for _ in range(3):
        watch.back(asked=time.monotonic())
    assert said.messages == ["kafka broker unreachable", "kafka broker reached again"]
    assert not watch.is_lost


def test_what_was_asked_before_the_loss_does_not_end_it(said: pytest.LogCaptureFixture) -> None:
    watch, before = BrokerWatch(), time.monotonic()
    watch.lost(asked=time.monotonic())
    watch.back(asked=before)
    assert watch.is_lost
    assert said.messages == ["kafka broker unreachable"]


def test_what_ran_out_of_time_after_it_was_asked_in_a_loss_does_not_begin_another(
    said: pytest.LogCaptureFixture,
) -> None:
    watch = BrokerWatch()
    watch.lost(asked=time.monotonic())
    meanwhile = time.monotonic()
    watch.back(asked=time.monotonic())
    watch.lost(asked=meanwhile)
    assert said.messages == ["kafka broker unreachable", "kafka broker reached again"]
    watch.lost(asked=time.monotonic())
    assert said.messages[2:] == ["kafka broker unreachable"]
