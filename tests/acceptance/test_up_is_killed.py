"""bin/up dies without a word: what it has started does not stay behind."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import Proc, free_port, until

pytestmark = pytest.mark.process
ROOT = Path(__file__).resolve().parents[2]


def started_by(data: Path) -> list[str]:
    """The command lines that run with this data directory in their environment."""
    told = subprocess.run(["ps", "axeww", "-o", "command="], check=True, capture_output=True, text=True).stdout
    return [line for line in told.splitlines() if f"AGENT_DATA_DIR={data} " in f"{line} "]


def test_after_kill_9_neither_web_nor_worker_is_left_and_the_port_is_free(tmp_path: Path) -> None:
    data, port = tmp_path / "data", free_port()
    env = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "FLEETSITE_PYTHON": sys.executable,
        "AGENT_DATA_DIR": str(data),
    }
    with Proc(
        "bin/up", [ROOT / "bin" / "up", "--port", str(port)], log=tmp_path / "up.log", env=env, cwd=tmp_path
    ) as up:
        up.wait_for_text("Ctrl-C stops everything.", 90)
        assert len(started_by(data)) > 3, "bin/up, the web process with its own, the worker"
        up.kill()
        until(lambda: not started_by(data), 20, "nothing of it is left", every=0.2)
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_when_it_is_stopped_in_order_nobody_else_ends_anything() -> None:
    sleeper = subprocess.Popen(["sleep", "60"], process_group=0)
    watch = subprocess.Popen([sys.executable, ROOT / "fleet" / "watch.py", "1"], stdin=subprocess.PIPE)
    try:
        watch.communicate(f"{sleeper.pid}\nover\n".encode(), timeout=20)
        assert (watch.returncode, sleeper.poll()) == (0, None)
    finally:
        sleeper.kill()
        sleeper.wait(10)


def test_what_does_not_hear_sigterm_is_killed_with_its_group() -> None:
    script = 'trap "" TERM; sleep 60 & echo ready; wait; sleep 60'
    deaf = subprocess.Popen(["sh", "-c", script], process_group=0, stdout=subprocess.PIPE)
    assert deaf.stdout is not None
    with deaf.stdout as said:
        assert said.readline() == b"ready\n"
    watch = subprocess.Popen([sys.executable, ROOT / "fleet" / "watch.py", "1"], stdin=subprocess.PIPE)
    watch.communicate(f"{deaf.pid}\n".encode(), timeout=20)
    assert deaf.wait(10) == -9
