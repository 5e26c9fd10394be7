"""A process that is frozen inside a transaction: the server ends that transaction, and others go on."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from dispatch import states
from dispatch.authority.store import FROZEN_S
from tests.dispatch.authority import world
from tests.dispatch.postgres import ground

pytestmark = [pytest.mark.store, pytest.mark.process, pytest.mark.usefixtures("world")]
HOLD = """
import os, signal
import django; django.setup()
from dispatch.authority.store import lock_sessions
from dispatch.models import WorkItem
from tests.dispatch.authority import world
item = WorkItem.objects.get()
with world.authority()._store.transaction():
    lock_sessions([item.session_id])
    WorkItem.objects.filter(pk=item.pk).update(task="written by the frozen one")
    print("holding", flush=True)
    os.kill(os.getpid(), signal.SIGSTOP)
"""


def test_what_a_frozen_process_has_locked_is_free_after_a_while_and_it_writes_nothing(tmp_path: Path) -> None:
    item = world.add("s1")
    holder = ground.python("holder", "-c", HOLD, log=tmp_path / "holder.log")
    try:
        holder.wait_for_text("holding", within=30)
        began = time.monotonic()
        assert world.authority().transitions.cancel([item.pk], code="cancelled", reason="x")[item.pk] == "done"
        assert time.monotonic() - began < FROZEN_S + 2
        holder.signal_group(signal.SIGCONT)
        assert holder.wait(20) != 0, "its transaction has failed"
    finally:
        holder.end()
    task = item.task
    item.refresh_from_db()
    assert (item.status, item.task) == (states.CANCELLED, task)
