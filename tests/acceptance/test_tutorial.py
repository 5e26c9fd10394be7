"""The tutorial, as somebody follows it: its files are written, its commands are run, in the order of the page."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import Proc, free_port

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.M | re.S)

pytestmark = [pytest.mark.process, pytest.mark.timeout(400)]


def blocks() -> list[tuple[str, str, str]]:
    """Language, what stands beside it, text."""
    return BLOCK.findall((ROOT / "docs" / "tutorial.md").read_text())


def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    # what the page has one write into the checkout lands beside it
    (tmp_path / ".venv").symlink_to(Path(sys.executable).parent.parent)
    (tmp_path / "manage.py").symlink_to(ROOT / "manage.py")
    for language, told, text in blocks():
        if language == "python":
            named = re.search(r'title="([^"]+)"', told)
            assert named is not None
            (tmp_path / named[1]).write_text(text)
    (start,) = [text.strip() for _, told, text in blocks() if "background" in told]
    port = free_port()
    env = {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "FLEETSITE_PYTHON": sys.executable,
    }
    start = start.replace("bin/up", f"exec {ROOT}/bin/up --port {port}")
    with Proc("bin/up", ["bash", "-c", start], log=tmp_path / "up.log", env=env, cwd=tmp_path) as up:
        up.wait_for_text("Ctrl-C stops everything.", 90)
        said = follow(
            [text for language, told, text in blocks() if (language, told) == ("sh", "")], port, env, tmp_path
        )
        up.signal(signal.SIGINT)
        assert up.wait(30) == 0
    asked, _, answered, held, resumed, killed = said
    assert "building 2.0" in asked
    assert asked.endswith("= 3\n"), "it asks a person"
    assert re.search(r"resume.*succeeded", answered, re.S)
    assert "is behind" in held or "behind_turn" in held
    assert "1 applied" in resumed
    assert "Kept" in killed or "kept" in killed, killed
    assert [text[-4:] for text in said[1:]] == ["= 0\n"] * 5


def follow(commands: list[str], port: int, env: dict[str, str], home: Path) -> list[str]:
    """Run them in one shell, as one terminal; what each has said, and its exit code in a last line."""
    mark = "-- next --"
    script = "".join(f"{command}\necho \"= $?\"; echo '{mark}'\n" for command in commands)
    ran = subprocess.run(
        ["bash", "-c", script.replace("127.0.0.1:8000", f"127.0.0.1:{port}")],
        cwd=home,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    return ran.stdout.split(f"{mark}\n")[:-1]
