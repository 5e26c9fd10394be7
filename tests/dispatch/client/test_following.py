"""A stream that is cut, ends or repeats itself is told as one."""

from __future__ import annotations

from typing import Any

import pytest

from dispatch.client import ConnectionLost, NotFound, StreamEvent
from dispatch.client.following import Open, Opened, Parser, Tell, follow
from dispatch.client.programs import Lost
from tests.dispatch.client.hand import Clock, Hand, answered, refused

JOB = "orch-" + "1" * 32


def sse(number: int, kind: str, data: str) -> bytes:
    return f"id: {number}\nevent: {kind}\ndata: {data}\n\n".encode()


def status(number: int, word: str) -> bytes:
    return sse(number, "status", f'{{"job_id":"{JOB}","status":"{word}"}}')


def text(number: int) -> bytes:
    return sse(number, "text", f'{{"text":"é {number}"}}')


def told(hand: Hand) -> list[StreamEvent]:
    return [step.event for step in hand.asked if isinstance(step, Tell)]


def opened(hand: Hand) -> list[int]:
    return [step.after for step in hand.asked if isinstance(step, Open)]


def test_bytes_may_be_cut_anywhere() -> None:
    whole = b"retry: 1000\n\n" + text(1) + b": keep-alive\n\n" + status(1, "running") + text(2).replace(b"\n", b"\r\n")
    for place in range(len(whole)):
        parser = Parser()
        events = parser.feed(whole[:place]) + parser.feed(whole[place:])
        assert [(number, kind) for number, kind, _ in events] == [(1, "text"), (1, "status"), (2, "text")]


@pytest.mark.parametrize("end", [None, Lost(why="cut", sent=True)], ids=["ended", "cut"])
def test_it_goes_on_behind_the_last_event_and_tells_nothing_twice(end: Any) -> None:
    clock = Clock()
    first = [Opened(), b"retry: 1000\n\n" + status(0, "running") + text(4) + text(5)[:9], end]
    second = [Opened(), status(4, "running") + text(5), status(5, "succeeded")]
    hand = Hand(clock, [*first, *second])
    hand.run(follow(JOB, 0, clock.patience()))
    assert opened(hand) == [0, 4]
    assert [(event.id, event.event) for event in told(hand)] == [
        (0, "status"),
        (4, "text"),
        (5, "text"),
        (5, "status"),
    ]
    assert told(hand)[2].data == {"text": "é 5"}


def test_a_server_that_is_away_is_waited_for() -> None:
    clock = Clock()
    away = [Lost(why="unreached", sent=False), refused(503, "store_unavailable"), refused(429, "rate_limited", "3")]
    hand = Hand(clock, [*away, Opened(), status(0, "failed")])
    hand.run(follow(JOB, 0, clock.patience()))
    assert [event.data["status"] for event in told(hand)] == ["failed"]
    assert hand.paused == [0.2, 0.4, 3.0]


def test_each_sign_of_life_gives_the_patience_anew() -> None:
    clock = Clock()
    cut = Lost(why="cut", sent=True)
    hand = Hand(clock, [*[Opened(), b"retry: 1000\n\n", cut] * 200, *[cut] * 20])
    with pytest.raises(ConnectionLost):
        hand.run(follow(JOB, 0, clock.patience(for_s=5)))
    assert len(opened(hand)) > 200


def test_an_unknown_job_is_said_at_once() -> None:
    clock = Clock()
    hand = Hand(clock, [answered({"status": "not_found", "error": "Job x not found"}, 404)])
    with pytest.raises(NotFound):
        hand.run(follow("x", 0, clock.patience()))
