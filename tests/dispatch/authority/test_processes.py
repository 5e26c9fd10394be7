"""Several real processes on one store: each turn commits once and in order, whatever becomes of the queue's file."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from dispatch import states
from dispatch.models import WorkItem
from dispatch.transports.sqlite import SQLiteTransport
from sessions_app.models import Session, Turn
from tests.dispatch.authority import world
from tests.support.processes import Proc, until

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("world")]

ROOT = Path(__file__).resolve().parents[3]
HANDS, SHARE = 4, 40


@contextlib.contextmanager
def hands(place: Path, share: int = SHARE) -> Iterator[list[Proc]]:
    argv = [sys.executable, "-m", "tests.dispatch.authority.hand", str(connection.settings_dict["NAME"])]
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                Proc(
                    f"hand {seed}",
                    [*argv, str(seed), str(share), str(HANDS * share)],
                    log=place / f"hand-{seed}.log",
                    env=dict(os.environ),
                    cwd=ROOT,
                )
            )
            for seed in range(1, HANDS + 1)
        ]


def each_ran_once_and_in_order(share: int = SHARE) -> None:
    items = list(WorkItem.objects.order_by("session_id", "session_seq"))
    assert len(items) == HANDS * share
    assert {item.status for item in items} == {states.SUCCEEDED}
    for session in Session.objects.all():
        places = [item.session_seq for item in items if item.session_id == session.pk]
        assert session.state == {"ran": places}, "each turn saw what the one before it had committed"
        assert session.turn_number == len(places)
        succeeded = Turn.objects.filter(session=session, status=states.SUCCEEDED).order_by("turn_number")
        assert list(succeeded.values_list("turn_number", flat=True)) == list(range(1, len(places) + 1))
    world.check()


@pytest.mark.store
def test_processes_that_dispatch_claim_settle_and_die_commit_each_turn_once_and_in_order(tmp_path: Path) -> None:
    with hands(tmp_path) as procs:
        for proc in procs:
            assert proc.wait(100) == 0
    each_ran_once_and_in_order()


def test_nothing_is_lost_when_the_queue_vanishes_again_and_again_under_the_processes(tmp_path: Path) -> None:
    transport = world.transport()
    assert isinstance(transport, SQLiteTransport)
    with hands(tmp_path) as procs:
        for number in range(8):
            done = WorkItem.objects.filter(finished_at__isnull=False).count()
            if number % 2:
                shutil.rmtree(transport.path.parent, ignore_errors=True)
            else:
                transport.path.unlink(missing_ok=True)
            more = min(done + 8, HANDS * SHARE)
            until(
                lambda more=more: WorkItem.objects.filter(finished_at__isnull=False).count() >= more,  # type: ignore[misc]
                60,
                "the processes go on",
            )
        for proc in procs:
            assert proc.wait(100) == 0
    world.authority().repair()
    each_ran_once_and_in_order()
