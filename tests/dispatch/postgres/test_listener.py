"""An idle worker is woken by the commit that makes a turn claimable, and hears again after it lost its connection."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest
from django.db import transaction

from dispatch.states import Verb
from dispatch.transports.notify import CHANNEL, NotifyListener
from tests.dispatch.authority import world
from tests.dispatch.postgres import ground
from tests.support.postgres import PostgresCluster
from tests.support.processes import until

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]
WOKEN_S = 0.1


class Ear(threading.Thread):
    """Waits in a loop, as a worker's wake-up thread does, and notes when it was woken."""

    def __init__(self, uri: str) -> None:
        super().__init__(daemon=True)
        self.listener = NotifyListener(uri)
        self.woken: list[float] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            if self.listener.wait(0.5):
                self.woken.append(time.monotonic())

    def after(self, moment: float, within: float) -> float:
        """Seconds from `moment` until it was woken."""
        until(lambda: any(at >= moment for at in self.woken), within, "the ear is woken", every=0.002)
        return next(at for at in self.woken if at >= moment) - moment


@pytest.fixture
def ear() -> Iterator[Ear]:
    listening = Ear(ground.uri())
    listening.start()
    until(lambda: listening.woken, 10, "it listens")
    yield listening
    listening.over.set()
    listening.join(5)
    listening.listener.close()


def test_a_dispatch_wakes_in_milliseconds(ear: Ear) -> None:
    took = []
    for number in range(10):
        moment = time.monotonic()
        world.add(f"s{number}")
        took.append(ear.after(moment, 2))
    assert statistics.median(took) < WOKEN_S


def test_a_turn_behind_another_wakes_nobody_and_its_promotion_does(ear: Ear) -> None:
    first = world.add("s")
    ear.after(0, 2)
    moment = time.monotonic()
    world.add("s")
    with pytest.raises(AssertionError):
        ear.after(moment, 0.4)
    moment = time.monotonic()
    world.end(world.claim_item(first), Verb.SUCCEEDED)
    assert ear.after(moment, 2) < 1.0


def test_what_is_rolled_back_wakes_nobody(ear: Ear) -> None:
    moment = time.monotonic()
    with transaction.atomic():
        world.add("s")
        transaction.set_rollback(True)
    with pytest.raises(AssertionError):
        ear.after(moment, 0.4)


def test_it_listens_again_after_its_backend_was_terminated(ear: Ear) -> None:
    moment = time.monotonic()
    ((ended,),) = ground.sql(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
        "WHERE datname = current_database() AND query = %s",
        f"LISTEN {CHANNEL}",
    )
    assert ended == 1
    ear.after(moment, 5)  # it says so itself, since notices may be lost meanwhile
    moment = time.monotonic()
    world.add("s")
    assert ear.after(moment, 2) < WOKEN_S * 5


@pytest.mark.process
def test_it_listens_again_after_the_server_was_restarted() -> None:
    with PostgresCluster() as cluster:
        ear = Ear(cluster.create_database("ear"))
        ear.start()
        try:
            until(lambda: ear.woken, 10, "it listens")
            cluster.stop()
            moment = time.monotonic()
            cluster.start()
            ear.after(moment, 10)
            moment = time.monotonic()
            _notify(cluster.uri("ear"))
            assert ear.after(moment, 2) < WOKEN_S * 5
        finally:
            ear.over.set()
            ear.join(5)
            ear.listener.close()


def _notify(uri: str) -> None:
    with psycopg.connect(uri, autocommit=True) as own:
        own.execute("SELECT pg_notify(%s, '')", [CHANNEL])


def test_a_server_that_does_not_answer_costs_a_pause_and_no_error() -> None:
    listener = NotifyListener("postgresql://nobody@127.0.0.1:1/none")
    began = time.monotonic()
    assert listener.wait(0.2) is False
    assert 0.2 <= time.monotonic() - began < 2
    listener.close()
