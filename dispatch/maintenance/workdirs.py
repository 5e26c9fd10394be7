"""Removes the directories of sessions that are no more. Each host has its own, so each maintaining worker looks."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

from dispatch.agents.command.surroundings import session_of
from dispatch.parts import parts
from sessions_app.models import Session

log = logging.getLogger("dispatch.maintenance")

PASS_PERIOD_S = 3600.0


class Workdirs:
    """A directory goes when its session has gone and it was last used longer than `keep` ago; None: never.

    The age keeps a process that was pointed at another store from removing what belongs to the right one.
    """

    def __init__(self, place: Path, *, keep: timedelta | None) -> None:
        self._place, self._keep = place, keep
        self._left: list[Path] = []
        self._next_pass = 0.0

    def run_once(self) -> int:
        """Remove one, if there is one to remove; answers how many went. A pass over all of them begins once an hour."""
        if self._keep is None:
            return 0
        if not self._left and time.monotonic() >= self._next_pass:
            self._next_pass = time.monotonic() + PASS_PERIOD_S
            try:
                self._left = self._forgotten(time.time() - self._keep.total_seconds())
            except OSError as error:  # of this host's disk; the other duties do not depend on it
                log.warning("directories of sessions not read", extra={"error": type(error).__name__})
        return _remove(self._left.pop()) if self._left else 0

    def _forgotten(self, before: float) -> list[Path]:
        if not self._place.is_dir():
            return []
        old = {path: row for path in self._place.iterdir() if (row := session_of(path)) and _used_at(path) < before}
        rows = sorted(set(old.values()))
        known: set[int] = set()
        for part in parts(rows, 500):
            known.update(Session.objects.filter(pk__in=part).values_list("pk", flat=True))
        return [path for path, row in old.items() if row not in known]


def _used_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:  # another process of this host was faster
        return time.time()


def _remove(path: Path) -> int:
    with suppress(OSError), _alone(path):
        shutil.rmtree(path)
        return 1
    return 0


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """As a command's supervisor holds it; OSError when one does."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)
