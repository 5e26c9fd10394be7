"""What bin/up refuses before it starts anything."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

UP = Path(__file__).resolve().parents[2] / "bin" / "up"


def up(home: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AGENT", "XDG_"))}
    return subprocess.run(
        [UP, "--once", *arguments],
        env={**clean, "HOME": str(home), "FLEETSITE_PYTHON": sys.executable, **env},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("port", ["0", "65536", "-1", "x", "８０"])
def test_a_port_that_is_none_is_a_usage_error(tmp_path: Path, port: str) -> None:
    done = up(tmp_path, f"--port={port}")
    assert done.returncode == 2
    assert f"must be a whole number from 1 to 65535, not {port}" in done.stderr


def test_a_port_that_is_taken_is_refused_and_nobody_talks_to_who_listens_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = up(tmp_path, "--port", str(port))
        taken.setblocking(False)
        with pytest.raises(BlockingIOError):
            taken.accept()
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"Port {port} of 127.0.0.1 is taken.\n")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("here", "must be an absolute path, so that every process means the same one"),
        ("~/here", "must be an absolute path, so that every process means the same one"),
        ("", "is set but empty; give it a value or unset it"),
    ],
)
def test_a_data_directory_that_the_processes_would_refuse_is_refused_with_their_sentence(
    tmp_path: Path, given: str, problem: str
) -> None:
    done = up(tmp_path, AGENT_DATA_DIR=given)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"AGENT_DATA_DIR {problem}.\n")
    assert list(tmp_path.iterdir()) == []
