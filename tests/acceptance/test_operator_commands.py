"""The operator's commands beside live workers: a tail that follows, Ctrl-C, a drain, a bar on a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.api import Api
from tests.support.fleet import ROOT, Fleet, new_session

pytestmark = pytest.mark.process


def test_a_tail_follows_a_live_turn_and_ends_with_it(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    job = api.dispatch("talk", s=6)
    run = fleet.until_begun(job)
    tail = fleet.spawn("tail", "manage.py", "jobs", "tail", job)
    tail.wait_for_text(run.nonce, within=15)
    assert api.status(job) == "running", "it tells while the turn goes on"
    assert tail.wait(20) == 0
    lines = tail.text().splitlines()
    stored = fleet.state_sql(
        "SELECT c.data FROM output_chunks c JOIN work_items i ON i.id = c.work_item_id WHERE i.job_id = ?", job
    )
    assert lines.count(run.nonce) == sum(str(data).count(run.nonce) for (data,) in stored)
    assert lines[-1].endswith("] succeeded")


def test_ctrl_c_ends_a_tail_and_not_the_job(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    job = api.dispatch("wait", s=60)
    fleet.until_begun(job)
    tail = fleet.spawn("tail", "manage.py", "jobs", "tail", job)
    tail.wait_for_text("] running", within=15)
    tail.signal(signal.SIGINT)
    assert tail.wait(5) == 130
    assert "Traceback" not in tail.text()
    assert api.status(job) == "running"


def test_a_dispatch_that_waits_tells_what_its_turn_says_and_ends_as_it_does(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    options = ("manage.py", "dispatch", "x", "--tenant", "t1", "--wait", "--timeout")
    asked = fleet.spawn("dispatch", *options, "60", "--agent", "talk", "--payload", '{"s": 6}')
    asked.wait_for_text(" in session ", within=20)
    job = asked.text().split()[0]
    run = fleet.until_begun(job)
    asked.wait_for_text(run.nonce, within=15)
    assert api.status(job) == "running", "it tells while the turn goes on"
    assert asked.wait(20) == 0
    assert f'"nonce": "{run.nonce}"' in asked.text().partition("result\n")[2]
    failed = fleet.spawn("dispatch", *options, "60", "--agent", "boom", "--max-attempts", "1")
    assert failed.wait(30) == 1
    asking = fleet.spawn("dispatch", *options, "60", "--agent", "ask")
    assert asking.wait(30) == 3
    long = fleet.spawn("dispatch", *options, "60", "--agent", "wait", "--payload", '{"s": 60}')
    long.wait_for_text("] running", within=20)
    long.signal(signal.SIGINT)
    assert long.wait(5) == 130
    assert "Traceback" not in long.text()
    assert api.status(long.text().split()[0]) == "running"
    late = fleet.spawn("dispatch", *options, "1", "--agent", "note")
    assert late.wait(30) == 124, "the worker's one slot is taken"


def test_a_drained_worker_ends_its_turn_claims_nothing_more_and_exits(fleet: Fleet, api: Api) -> None:
    worker = fleet.worker(1)
    session = new_session()
    job, following = api.dispatch("wait", session, s=6), api.dispatch("note", session)
    fleet.until_begun(job)
    (row,) = [row for row in fleet.topology()["dispatch_workers"] if f":{worker.pid}:" in row["worker_id"]]
    asked = fleet.spawn("drain", "manage.py", "fleet", "drain", row["worker_id"], "--reason", "new kernel", "--json")
    assert asked.wait(20) == 0
    assert json.loads(asked.text()) == {"worker_id": row["worker_id"], "draining": True}
    assert worker.wait(20) == 0
    assert api.status(job) == "succeeded", "what ran went on to its end"
    assert api.status(following) == "pending", "and nothing was claimed after it"
    fleet.worker(1)
    api.until(following, "succeeded", within=10)


def test_a_long_act_draws_its_bar_on_a_terminal(fleet: Fleet, api: Api) -> None:
    for number in range(150):
        api.request("POST", "/api/sessions", {"session_id": f"bar-{number}", "metadata": {"domain": "bar"}})
    command = [sys.executable, "manage.py", "fleet", "pause", "--domain", "bar", "--reason", "x"]
    screen, terminal = pty.openpty()
    done = subprocess.run(
        command, cwd=ROOT, env=fleet.variables(), stdout=subprocess.PIPE, stderr=terminal, text=True, check=False
    )
    os.close(terminal)
    seen = b""
    with suppress(OSError):  # the end of a terminal is an error on Linux
        while part := os.read(screen, 4096):
            seen += part
    os.close(screen)
    assert (done.returncode, done.stdout) == (0, "pause: 150 applied; --json tells of each session\n")
    assert b"100 of 150" in seen
    assert b"150 of 150" in seen


def test_where_there_is_no_store_every_verb_says_so_with_exit_2(fleet: Fleet, tmp_path: Path) -> None:
    for arguments in (("jobs", "list"), ("fleet", "pause", "s", "--reason", "x"), ("fleet", "drain", "w")):
        asked = fleet.spawn("nowhere", "manage.py", *arguments, env={"AGENT_DATA_DIR": tmp_path / "none"})
        assert asked.wait(20) == 2
        assert "Traceback" not in asked.text()
        assert "state" in asked.text()
