"""The queue's file may be lost at any time and is made anew from the state; the state's file never is. SQLite alone."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection

from dispatch import states
from dispatch.errors import QueueUnavailable, StoreUnavailable
from dispatch.models import WorkItem
from dispatch.states import QueueState, Verb
from dispatch.transports.sqlite import SQLiteTransport
from sessions_app.state_file import state_file
from tests.dispatch.authority import world

pytestmark = pytest.mark.usefixtures("world")


@pytest.fixture
def queue() -> SQLiteTransport:
    transport = world.transport()
    if not isinstance(transport, SQLiteTransport):
        pytest.skip("the queue is in the state store")
    return transport


def _delete_file(path: Path) -> None:
    path.unlink()


def _delete_log(path: Path) -> None:
    for side in ("-wal", "-shm"):
        Path(f"{path}{side}").unlink()


def _delete_directory(path: Path) -> None:
    shutil.rmtree(path.parent)


def _replace_with_rubbish(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"this is no database" * 500)
    os.replace(other, path)


def _overwrite_with_rubbish(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"this is no database" * 2_000)


LOSSES = [
    _delete_file,
    _delete_log,
    _delete_directory,
    _replace_with_rubbish,
    _overwrite_with_rubbish,
]


def _fleet() -> dict[str, WorkItem]:
    """One item in each condition that a queue row can have."""
    items = {"running": world.add("running")}
    world.claim_item(items["running"])
    items["behind"] = world.add("running")
    items["ready"] = world.add("ready")
    items["asking"] = world.run(world.add("asking"), Verb.SUSPEND, code="input", question="which?")
    items["retrying"] = world.run(world.add("retrying"), Verb.RETRY, delay_s=60.0, code="agent_error")
    items["waiting"] = world.add("waiting", dependencies=[items["ready"].job_id])
    items["paused"] = world.add("paused")
    world.authority().transitions.pause([items["paused"].session_id], by="me", reason="")
    world.run(world.add("ended"))
    return items


@pytest.mark.parametrize("lose", LOSSES, ids=[lose.__name__[1:] for lose in LOSSES])
def test_a_queue_that_was_lost_under_its_users_is_made_anew_from_the_state(
    queue: SQLiteTransport, lose: Callable[[Path], None]
) -> None:
    items = _fleet()
    idle, over = threading.Event(), threading.Event()

    def hold() -> None:
        """Another thread that has the file open and does nothing: its locks on the old log stay."""
        queue.page(after=0, limit=1)
        idle.set()
        over.wait(60)
        queue.close()
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert idle.wait(20)
    try:
        lose(queue.path)
        (lease,) = [lease for lease in world.claim(want=5) if lease.job_id == items["ready"].job_id]
        world.end(lease)
        world.check()
        said = {name: world.row_of(item) for name, item in items.items()}
        states_said = {name: row.state if row else None for name, row in said.items()}
        assert states_said == {
            "running": QueueState.CLAIMED,
            "behind": QueueState.BEHIND,
            "ready": None,
            "asking": QueueState.SUSPENDED,
            "retrying": QueueState.DUE_LATER,
            "waiting": QueueState.CLAIMABLE,
            "paused": QueueState.PAUSED,
        }
    finally:
        over.set()
        thread.join(20)
    world.check()


def test_an_old_copy_in_the_files_place_is_repaired_from_the_state(queue: SQLiteTransport) -> None:
    first = world.add("a")
    with sqlite3.connect(queue.path) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    other.close()
    copy = queue.path.with_name("old.db")
    shutil.copyfile(queue.path, copy)
    second = world.add("b")
    world.run(first)
    os.replace(copy, queue.path)
    world.authority().repair()
    world.check()
    assert [lease.job_id for lease in world.claim(want=5)] == [second.job_id]


@pytest.mark.parametrize("lose", LOSSES[:3], ids=[lose.__name__[1:] for lose in LOSSES[:3]])
def test_the_depth_of_a_queue_that_is_being_rebuilt_is_an_error_and_never_nought(
    queue: SQLiteTransport, lose: Callable[[Path], None]
) -> None:
    world.add()
    assert queue.depth() == 1
    lose(queue.path)
    for _ in range(2):
        with pytest.raises(QueueUnavailable):
            queue.depth()
    assert queue.rebuilding
    world.authority().repair()
    assert (queue.rebuilding, queue.depth()) == (False, 1)


def test_a_rebuild_that_is_undone_leaves_the_queue_rebuilding(queue: SQLiteTransport) -> None:
    world.add()
    queue.path.unlink()
    with pytest.raises(ZeroDivisionError), world.authority()._store.transaction():
        raise ZeroDivisionError
    with pytest.raises(QueueUnavailable):
        queue.depth()
    assert len(world.claim(want=5)) == 1


def test_a_dispatch_that_is_committed_is_answered_though_the_queue_fails_at_its_own_commit(
    queue: SQLiteTransport,
) -> None:
    with sqlite3.connect(queue.path, isolation_level=None) as other:
        # a deferred constraint is looked at by COMMIT, as a full disk is noticed by it
        other.execute("CREATE TABLE place (id INTEGER PRIMARY KEY)")
        other.execute("CREATE TABLE fault (id INTEGER REFERENCES place (id) DEFERRABLE INITIALLY DEFERRED)")
        other.execute(
            "CREATE TRIGGER fail AFTER INSERT ON agent_dispatch_queue BEGIN INSERT INTO fault VALUES (new.rowid); END"
        )
    other.close()
    queue._connection().execute("PRAGMA foreign_keys = ON")
    item = world.add()
    assert item.status == states.READY
    assert world.queue_rows() == {}
    queue._connection().execute("DROP TRIGGER fail")
    assert world.authority().repair() == 1
    assert world.claim_one().job_id == item.job_id
    world.check()


def test_a_state_file_that_has_vanished_is_an_error_and_is_never_made_anew(queue: SQLiteTransport) -> None:
    item = world.add()
    path = state_file(connection)
    assert path is not None
    away = path.with_name(f"{path.name}.away")
    path.rename(away)
    try:
        for act in (
            lambda: world.add("b"),
            lambda: world.claim(),
            lambda: world.authority().transitions.cancel([item.pk], code="cancelled"),
        ):
            with pytest.raises(StoreUnavailable):
                act()
        assert not path.exists()
    finally:
        away.rename(path)
    assert len(world.claim(want=5)) == 1
    world.check()


def test_what_is_admitted_after_the_state_file_was_replaced_is_in_the_new_file(queue: SQLiteTransport) -> None:
    world.add("before")
    path = state_file(connection)
    assert path is not None
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    copy = path.with_name(f"{path.name}.copy")
    shutil.copy(path, copy)
    copy.rename(path)  # as a restore does, under the connection that is open
    after = world.add("after")
    with contextlib.closing(sqlite3.connect(path)) as reader:
        (found,) = reader.execute("SELECT count(*) FROM work_items WHERE job_id = ?", [after.job_id]).fetchone()
    assert found == 1
    world.check()


def test_the_state_file_is_made_by_nobody_who_only_opens_it(tmp_path: Path) -> None:
    from fleetsite.databases import sqlite

    address = sqlite(tmp_path / "state.db")["NAME"]
    with pytest.raises(sqlite3.OperationalError):
        sqlite3.connect(address, uri=True)
    assert not (tmp_path / "state.db").exists()
