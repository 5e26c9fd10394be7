"""Behind a transaction pooler: refused without a direct address, and whole with one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dispatch.postgres import ground
from tests.support.parts import missing
from tests.support.pgbouncer import NoPgBouncer, PgBouncer
from tests.support.processes import until

pytestmark = [pytest.mark.store, pytest.mark.process, pytest.mark.usefixtures("world")]
DISPATCH = """
import django; django.setup()
from dispatch.access import Caller
from dispatch.services import job_dispatch
from dispatch.specs import DispatchSpec
caller = Caller(tenant="t1", name="test", kind="system", scopes=frozenset({"dispatch"}))
for number in range(20):
    job_dispatch(caller=caller, spec=DispatchSpec.parse({"task": "do it", "session_id": f"s-{number % 4}"}))
"""


@pytest.fixture
def pooler() -> Iterator[PgBouncer]:
    try:
        made = PgBouncer(ground.uri())
    except NoPgBouncer as refusal:
        missing(str(refusal))
    with made:
        yield made


def _ended() -> int:
    ((count,),) = ground.sql("SELECT count(*) FROM work_items WHERE status = 'succeeded'")
    return int(count)


def test_a_worker_without_a_direct_address_is_refused_and_told_the_setting(pooler: PgBouncer, tmp_path: Path) -> None:
    env = {"STATE_DB_URI": pooler.uri, "DJANGO_SETTINGS_MODULE": "fleetsite.settings"}
    with ground.python("worker", "manage.py", "run_dispatch_worker", log=tmp_path / "log", env=env) as worker:
        assert worker.wait(30) == 2
        assert worker.text().startswith("STATE_DB_DIRECT_URI: a transaction pooler answers there;")


def test_with_a_direct_address_it_dispatches_runs_and_wakes_through_the_pooler(
    pooler: PgBouncer, tmp_path: Path
) -> None:
    env = {
        "STATE_DB_URI": pooler.uri,
        "STATE_DB_DIRECT_URI": ground.uri(),
        "DJANGO_SETTINGS_MODULE": "fleetsite.settings",
    }
    argv = ("manage.py", "run_dispatch_worker", "--capacity", 4)
    with ground.python("worker", *argv, log=tmp_path / "worker.log", env=env) as worker:
        registered = "SELECT 1 FROM dispatch_workers"
        until(lambda: not worker.alive or ground.sql(registered), 30, "the worker is registered")
        assert worker.alive, worker.tail()
        listening = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'"
        until(lambda: ground.sql(listening), 10, "it listens at the server itself")
        with ground.python("caller", "-c", DISPATCH, log=tmp_path / "caller.log", env=env) as caller:
            assert caller.wait(30) == 0, caller.tail()
        until(lambda: _ended() == 20, 20, "all turns are done")
        led = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        assert ground.sql(led) == [(1,)], "the leader holds the lock of its term, once"
        worker.signal(15)
        assert worker.wait(20) == 0, worker.tail()
    time_limit = time.monotonic() + 5
    until(lambda: ground.sql(led) == [(0,)], time_limit - time.monotonic(), "no lock is left on a pooled session")
