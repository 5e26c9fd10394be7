"""The whole process without the process: its end, orderly or blind."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

import pytest

from dispatch.agents.registry import Registry
from dispatch.ports import Authority, Serves
from dispatch.worker import process
from dispatch.worker.process import EXIT_BLIND, WorkerProcess
from dispatch.worker.start import consumer_settings
from dispatch.worker_ports import Beat
from tests.dispatch.agents.turn_store import MemoryTurnStore
from tests.dispatch.worker.parts import WAIT_S, ByHand, Heard
from tests.support.processes import until

SERVES = Serves(agents=("echo",), kinds=("orchestrator_task",))


@dataclass
class Rows:
    """The registry in memory."""

    present: set[str] = field(default_factory=set)
    draining: bool = False

    def beat(self, beat: Beat) -> bool:
        self.present.add(beat.worker_id)
        return self.draining

    def leave(self, worker_id: str) -> None:
        self.present.discard(worker_id)


class NeverWoken:
    closed = False

    def wait(self, timeout_s: float) -> bool:
        time.sleep(min(timeout_s, 0.05))
        return False

    def close(self) -> None:
        self.closed = True


def made(authority: Authority, rows: Rows, count: int = 2, **more: object) -> WorkerProcess:
    consumers = consumer_settings(count, host_label="test", capacity=1, serves=SERVES, ttl_s=60, heartbeat_s=30)
    return WorkerProcess(
        consumers,
        authority=authority,
        agents=Registry(),
        store=MemoryTurnStore(),
        registry=rows,
        events=Heard(),
        listener=NeverWoken(),
        renew_s=20,
        grace_s=30,
        **more,  # type: ignore[arg-type]
    )


def test_consumers_of_one_process_have_names_and_tokens_of_their_own() -> None:
    settings = consumer_settings(3, host_label="test", capacity=1, serves=SERVES, ttl_s=60, heartbeat_s=30)
    assert [one.worker_id.split(":")[0::2] for one in settings] == [["test", "agent-dispatch"]] * 3
    assert [one.worker_id.split(":")[3] for one in settings] == ["0", "1", "2"]
    assert len({one.owner for one in settings}) == 3
    assert not any(one.owner in one.worker_id for one in settings)


def test_a_signal_ends_an_idle_process_with_0_and_its_rows_are_gone() -> None:
    rows = Rows()
    worker = made(ByHand(), rows)
    codes: list[int] = []
    thread = threading.Thread(target=lambda: codes.append(worker.run()))
    thread.start()
    until(lambda: len(rows.present) == 2, WAIT_S, "both consumers report themselves")
    worker.signal()
    thread.join(WAIT_S)
    assert codes == [0]
    assert not rows.present


def test_a_signal_takes_no_lock_that_the_interrupted_thread_may_hold() -> None:
    worker = made(ByHand(), Rows())
    with vars(worker._changed)["_cond"]:
        handler = threading.Thread(target=worker.signal, daemon=True)
        handler.start()
        handler.join(WAIT_S)
        assert not handler.is_alive()


def test_a_process_that_stays_blind_ends_with_another_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "BLIND_LIMIT_S", 0.3)
    assert made(ByHand(away=True), Rows()).run() == EXIT_BLIND


def test_a_blind_process_that_is_told_to_stop_does_not_stay_until_it_would_have_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "FAREWELL_S", 0.3)
    worker = made(ByHand(away=True), Rows())
    worker.signal()
    begun = time.monotonic()
    assert worker.run() == EXIT_BLIND
    assert time.monotonic() - begun < process.BLIND_LIMIT_S / 2


def test_a_failing_tick_is_tried_again_and_the_consumers_go_on() -> None:
    calls: list[float] = []

    def tick() -> float:
        calls.append(time.monotonic())
        if len(calls) == 1:
            raise ConnectionError("away")
        worker.signal()
        return 0.01

    rows = Rows()
    worker = made(ByHand(), rows, housekeeping=tick)
    assert worker.run() == 0
    assert len(calls) >= 2
