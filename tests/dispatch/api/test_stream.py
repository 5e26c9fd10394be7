"""A job's stream of events, on a clock that only sleeping moves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection

from dispatch.api.stream import JobStream, event, event_response, read_last_event_id
from dispatch.errors import Invalid, JobNotFound

JOB = "orch-" + "1" * 32
MOST = 2  # chunks that one read brings


class Store:
    """A job whose life is a list of moments: (from second, status) and (from second, chunk)."""

    def __init__(self, statuses: dict[float, str], texts: dict[float, str] | None = None) -> None:
        self.now = 0.0
        self.slept: list[float] = []
        self.statuses, self.texts = statuses, list((texts or {}).items())
        self.fails: Exception | None = None

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def status(self) -> str:
        if self.fails is not None and self.now > 0:
            raise self.fails
        return [status for second, status in self.statuses.items() if second <= self.now][-1]

    def chunks(self, after: int) -> list[dict[str, Any]]:
        there = [(n, text) for n, (second, text) in enumerate(self.texts, 1) if second <= self.now]
        return [{"id": n, "kind": "text", "data": {"text": text}} for n, text in there if n > after][:MOST]

    def stream(self, **facts: Any) -> JobStream:
        return JobStream(
            job_id=JOB,
            read_status=self.status,
            read_chunks=self.chunks,
            clock=lambda: self.now,
            sleep=self.sleep,
            **facts,
        )

    def run(self, **facts: Any) -> list[str]:
        stream = self.stream(**facts)
        stream.look()
        return list(stream.events())


def told(parts: list[str]) -> list[tuple[int, str, Any]]:
    """(id, event, data) of each event."""
    events = []
    for block in "".join(parts).split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in lines:
            events.append((int(lines["id"]), lines["event"], json.loads(lines["data"])))
    return events


def status(number: int, word: str) -> tuple[int, str, Any]:
    return number, "status", {"job_id": JOB, "status": word}


def text(number: int, word: str) -> tuple[int, str, Any]:
    return number, "text", {"text": word}


def test_a_finished_job_is_replayed_and_the_stream_ends_with_its_status() -> None:
    store = Store({0: "succeeded"}, {0: "a", 0.0001: "b"})
    store.now = 1
    assert told(store.run()) == [text(1, "a"), text(2, "b"), status(2, "succeeded")]
    assert store.slept == []


def test_all_the_output_of_a_finished_job_comes_before_its_status() -> None:
    store = Store({0: "succeeded"}, {second / 10: str(second) for second in range(5)})
    store.now = 1
    events = told(store.run())
    assert [event[0] for event in events] == [1, 2, 3, 4, 5, 5]
    assert events[-1] == status(5, "succeeded")
    assert store.slept == []


def test_a_running_job_is_followed_to_its_end() -> None:
    store = Store({0: "pending", 1: "running", 3: "failed"}, {1.5: "a", 2.9: "b"})
    assert told(store.run()) == [
        status(0, "pending"),
        status(0, "running"),
        text(1, "a"),
        text(2, "b"),
        status(2, "failed"),
    ]


def test_a_stream_goes_on_after_the_last_event_received() -> None:
    store = Store({0: "succeeded"}, {0: "a"})
    assert told(store.run(after=1)) == [status(1, "succeeded")]


def test_the_client_is_told_when_to_come_back() -> None:
    assert Store({0: "succeeded"}).run()[0] == "retry: 1000\n\n"


def test_a_quiet_job_is_polled_less_and_kept_alive() -> None:
    store = Store({0: "pending"})
    parts = store.run(max_s=40)
    assert store.slept[0] == 0.25
    assert max(store.slept) == 1.0
    assert parts.count(": keep-alive\n\n") == 2


def test_a_stream_is_bounded() -> None:
    store = Store({0: "running"})
    store.run()
    assert 55 <= store.now <= 56


def test_output_makes_the_polling_quick_again() -> None:
    store = Store({0: "running", 12: "succeeded"}, {10: "a"})
    store.run()
    assert store.slept.count(0.25) == 2


@pytest.mark.parametrize("error", [OperationalError("away"), JobNotFound(JOB)])
def test_a_store_that_goes_away_ends_the_stream(error: Exception) -> None:
    store = Store({0: "running"})
    store.fails = error
    assert told(store.run()) == [status(0, "running")]


def test_an_unknown_job_is_told_before_the_stream_begins() -> None:
    store = Store({0: "running"})
    store.fails, store.now = JobNotFound(JOB), 1
    with pytest.raises(JobNotFound):
        store.stream().look()


def test_an_event_is_one_line_of_json() -> None:
    assert event(7, "text", {"text": "a\nb\r\u2028"}) == ('id: 7\nevent: text\ndata: {"text":"a\\nb\\r\\u2028"}\n\n')


@pytest.mark.parametrize("header", ["x", "-1", "1.5", "٣", "9" * 19, "0x1", " 1"])
def test_an_id_that_no_stream_has_sent_is_refused(header: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_last_event_id(header)
    assert list(caught.value.fields) == ["Last-Event-ID"]


@pytest.mark.parametrize(("header", "number"), [(None, 0), ("", 0), ("0", 0), ("41", 41)])
def test_the_last_id_is_read(header: str | None, number: int) -> None:
    assert read_last_event_id(header) == number


def test_the_answer_is_an_unbuffered_event_stream() -> None:
    answer = event_response(iter(["a"]))
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert answer.headers["Cache-Control"] == "no-store"


@pytest.mark.django_db(transaction=True)
def test_no_connection_is_held_while_waiting() -> None:
    held: list[bool] = []

    def read() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        return "running" if len(held) < 2 else "succeeded"

    def sleep(seconds: float) -> None:
        held.append(connection.connection is not None)

    stream = JobStream(job_id=JOB, read_status=read, read_chunks=lambda after: [], sleep=sleep)
    stream.look()
    consume(stream.events)
    assert held == [False, False]


def consume(events: Callable[[], Iterator[str]]) -> None:
    for _ in events():
        pass
