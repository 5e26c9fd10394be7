"""The directories of sessions that are no more, and only those."""

from __future__ import annotations

import fcntl
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from dispatch.agents.command.surroundings import session_directory
from dispatch.maintenance.workdirs import Workdirs
from sessions_app.models import Session
from tests.dispatch.agents.turn_store import lease
from tests.dispatch.authority import world

pytestmark = [pytest.mark.store, pytest.mark.usefixtures("world")]

KEEP = timedelta(days=7)
GONE = 2**40


def directory(place: Path, row: int, *, days: float = 8) -> Path:
    """A session's directory, with something in it, last used so long ago."""
    path = session_directory(place, lease(session_pk=row))
    (path / "inner").mkdir()
    (path / "inner" / "kept").write_text("x")
    then = time.time() - days * 86400
    os.utime(path, (then, then))
    return path


def swept(place: Path, keep: timedelta | None = KEEP) -> int:
    sweep, count = Workdirs(place, keep=keep), 0
    for _ in range(10):
        count += sweep.run_once()
    return count


def test_only_what_is_old_and_whose_session_is_gone_goes(tmp_path: Path) -> None:
    world.add("s")
    row = Session.objects.values_list("pk", flat=True).get()
    kept = [directory(tmp_path, row), directory(tmp_path, GONE, days=6), tmp_path / "notes"]
    kept[-1].mkdir()
    (tmp_path / f"session-{GONE}-{'0' * 24}").symlink_to(kept[0])
    os.utime(kept[-1], (0, 0))
    old = [directory(tmp_path, GONE + n) for n in (1, 2, 3)]
    assert swept(tmp_path) == 3
    assert [path.exists() for path in old] == [False] * 3
    assert all(path.exists() for path in kept)
    assert (kept[0] / "inner" / "kept").exists()


def test_one_in_use_stays_and_without_a_limit_of_age_all_stay(tmp_path: Path) -> None:
    used = directory(tmp_path, GONE)
    assert swept(tmp_path, keep=None) == 0
    descriptor = os.open(used, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        assert swept(tmp_path) == 0
    finally:
        os.close(descriptor)
    assert swept(tmp_path) == 1
    assert swept(tmp_path / "none") == 0


def test_a_disk_that_cannot_be_read_holds_up_no_other_duty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = directory(tmp_path, GONE)

    def refuse(self: Path) -> None:
        raise PermissionError(13, "not yours")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "iterdir", refuse)
        assert swept(tmp_path) == 0
    assert old.exists()
