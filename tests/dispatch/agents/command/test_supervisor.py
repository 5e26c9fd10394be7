"""Nothing of a command outlives its time by more than the grace, whatever it or its worker does."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dispatch.agents.command.process import SUPERVISOR, Parts, Plan, spawn
from dispatch.agents.runner import Stop
from dispatch.outcomes import AgentFailed, CancelledRun, LeaseGone, Succeeded
from tests.dispatch.agents.command.commands import declared, run, stopped
from tests.support.processes import until
from tests.support.trees import alive, grown, tree

pytestmark = pytest.mark.process

GRACE_S = 0.3
SLACK_S = 5.0  # for a busy machine


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Parts]]:
    """Supervisors of trees, without a worker that listens; what is left of them is ended."""
    made: list[Parts] = []

    def start(*argv: str, alone: bool = False, cwd: Path = tmp_path) -> Parts:
        env = {"PATH": os.environ["PATH"]}
        plan = Plan(argv=argv or tree(tmp_path), env=env, cwd=cwd, alone=alone, stdin=b"", grace_s=GRACE_S)
        made.append(spawn(plan))
        return made[-1]

    yield start
    for parts in made:
        for number in (parts.control, parts.status, parts.stdout, parts.stderr):
            os.close(number)
        parts.popen.wait(SLACK_S)
    for pid in alive(tmp_path):
        os.kill(pid, signal.SIGKILL)


def hang_up(number: int) -> None:
    """Close this end of a pipe. Its number stays taken: what gets it in the meantime would be closed by the fixture."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)


def gone(place: Path, parts: Parts) -> float:
    """Wait until nothing is left; answers how long that took."""
    begun = time.monotonic()
    assert parts.popen.wait(GRACE_S + SLACK_S) == 0
    assert alive(place) == []
    return time.monotonic() - begun


def said(parts: Parts) -> list[str]:
    return os.read(parts.status, 65536).decode().split("\n")


def test_the_supervisor_imports_little_and_nothing_of_ours() -> None:
    """It is started for each run, and without this installation on its path."""
    nodes = list(ast.walk(ast.parse(Path(SUPERVISOR[-1]).read_text())))
    imported = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    light = {"__future__", "ctypes", "fcntl", "math", "os", "select", "signal", "sys", "time"}
    assert imported <= light, f"{imported - light}: is it worth the time of each start?"


def test_the_whole_tree_ends_when_the_worker_is_gone(tmp_path: Path, started: Callable[..., Parts]) -> None:
    parts = started()
    until(lambda: grown(tmp_path), SLACK_S, "the tree has grown")
    hang_up(parts.control)
    assert gone(tmp_path, parts) >= GRACE_S / 2, "one of them hears no SIGTERM"
    assert said(parts)[1:3] == ["E worker", "X 0"]


def test_the_whole_tree_ends_when_nobody_renews_the_lease(tmp_path: Path, started: Callable[..., Parts]) -> None:
    parts = started()
    os.write(parts.control, f"L{time.monotonic() + 0.2:.3f}\n".encode())
    os.write(parts.control, f"L{time.monotonic() + SLACK_S:.3f}\n".encode())
    until(lambda: grown(tmp_path), SLACK_S, "the tree has grown")
    assert parts.popen.poll() is None
    os.write(parts.control, f"L{time.monotonic() + 0.1:.3f}\n".encode())
    gone(tmp_path, parts)
    assert said(parts)[1] == "E lease"


def test_a_lease_that_is_over_before_the_command_starts_starts_nothing(
    tmp_path: Path, started: Callable[..., Parts]
) -> None:
    first = started(alone=True)
    until(lambda: grown(tmp_path), SLACK_S, "the tree has grown")
    second = started(alone=True)
    os.write(second.control, f"L{time.monotonic() + 0.2:.3f}\n".encode())
    assert second.popen.wait(SLACK_S) == 0
    assert said(second) == ["E lease", "G", ""]
    third = started("true", alone=True)
    assert third.popen.poll() is None, "the directory is the first one's"
    os.write(first.control, b"T\n")
    gone(tmp_path, first)
    assert third.popen.wait(SLACK_S) == 0
    assert said(third)[1:] == ["X 0", "G", ""]


def test_a_command_never_starts_in_a_directory_that_was_removed_while_it_waited(
    tmp_path: Path, started: Callable[..., Parts]
) -> None:
    place = tmp_path / "inner"
    for again in (False, True):
        place.mkdir()
        first = started("sleep", "100", alone=True, cwd=place)
        assert said(first)[0].startswith("P ")
        second = started("true", alone=True, cwd=place)
        place.rmdir()
        if again:
            place.mkdir()
        os.write(first.control, b"T\n")
        assert second.popen.wait(SLACK_S) == 0
        assert said(second) == ["F 2", "G", ""]


def test_a_signal_to_the_supervisor_ends_the_tree_and_its_death_ends_the_command(
    tmp_path: Path, started: Callable[..., Parts]
) -> None:
    parts = started()
    until(lambda: grown(tmp_path), SLACK_S, "the tree has grown")
    parts.popen.terminate()
    gone(tmp_path, parts)
    agent = declared(tmp_path, "sh", "-c", f"touch {tmp_path}/tree.$$; kill -KILL $PPID; exec sleep 100")
    assert run(agent) == AgentFailed(message="CommandFailed: sh was ended together with its supervisor")
    until(lambda: not alive(tmp_path), SLACK_S, "the command is gone")


def test_a_supervisor_that_cannot_go_on_leaves_nothing_behind(tmp_path: Path, started: Callable[..., Parts]) -> None:
    parts = started()
    until(lambda: grown(tmp_path), SLACK_S, "the tree has grown")
    os.write(parts.control, b"Lnonsense\n")
    assert parts.popen.wait(SLACK_S) == 1
    until(lambda: not alive(tmp_path), SLACK_S, "nothing is left")


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (Stop.CANCELLED, CancelledRun(code="cancelled", message="cancelled on request")),
        (Stop.LOST, LeaseGone()),
    ],
)
def test_a_run_that_is_stopped_ends_when_nothing_of_it_is_left(tmp_path: Path, code: str, outcome: object) -> None:
    agent = declared(tmp_path, *tree(tmp_path), stop_grace_s=GRACE_S)
    ended, _ = stopped(agent, lambda: grown(tmp_path), lambda one: one.stop(code), job_id="tree")
    assert ended == outcome
    assert alive(tmp_path) == []


def test_a_run_without_renewals_ends_with_its_lease(tmp_path: Path) -> None:
    agent = declared(tmp_path, *tree(tmp_path), stop_grace_s=GRACE_S)
    ended, _ = stopped(
        agent, lambda: grown(tmp_path), lambda one: one.held_until(time.monotonic() + 0.1), job_id="tree"
    )
    assert ended == LeaseGone()
    assert alive(tmp_path) == []


def test_a_command_that_freezes_its_supervisor_is_ended_all_the_same(tmp_path: Path) -> None:
    agent = declared(
        tmp_path, "sh", "-c", f"touch {tmp_path}/tree.$$; kill -STOP $PPID; exec sleep 100", stop_grace_s=0
    )
    ended, _ = stopped(agent, lambda: alive(tmp_path), lambda one: one.stop(Stop.CANCELLED))
    assert isinstance(ended, CancelledRun)
    until(lambda: not alive(tmp_path), SLACK_S, "the command is gone")


WORKER = """
import sys, threading, time
from pathlib import Path
from dispatch.agents.command.process import Plan, spawn
place, path, *argv = sys.argv[1:]
plan = Plan(argv=argv, env={"PATH": path}, cwd=Path(place), alone=False, stdin=b"", grace_s=0.3)
thread = threading.Thread(target=spawn, args=(plan,))
thread.start()
thread.join()  # the supervisor outlives the thread that started it
time.sleep(100)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of a parent's death")
def test_a_command_that_freezes_its_supervisor_does_not_outlive_the_worker(tmp_path: Path) -> None:
    freeze = f"touch {tmp_path}/tree.$$; kill -STOP $PPID; exec sleep 100"
    argv = [sys.executable, "-c", WORKER, str(tmp_path), os.environ["PATH"], "sh", "-c", freeze]
    with subprocess.Popen(argv, cwd=Path(__file__).parents[4]) as worker:
        (command,) = until(lambda: alive(tmp_path), SLACK_S, "the command runs")
        supervisor = shown(command, "ppid")
        until(lambda: shown(int(supervisor), "state") == "T", SLACK_S, "its supervisor is frozen")
        worker.kill()
    until(lambda: not alive(tmp_path), SLACK_S, "the command is gone")


def shown(pid: int, column: str) -> str:
    argv = ["ps", "-o", f"{column}=", "-p", str(pid)]
    return subprocess.run(argv, check=False, capture_output=True, text=True).stdout.strip()


def test_what_has_ended_when_the_cancel_comes_is_a_value(tmp_path: Path) -> None:
    """The command itself has ended; what it left behind is being ended."""
    left = f"(trap 'touch {tmp_path}/told' TERM; touch {tmp_path}/up; while :; do sleep 0.02; done) & "
    wait = f"until test -e {tmp_path}/up; do sleep 0.01; done; echo a"
    agent = declared(tmp_path, "sh", "-c", left + wait, stop_grace_s=1)
    ended, _ = stopped(agent, (tmp_path / "told").exists, lambda one: one.stop(Stop.CANCELLED))
    assert ended == Succeeded(result="a", state={"seen": [1]})


def test_where_there_is_no_subreaper_the_group_is_ended_and_awaited(tmp_path: Path) -> None:
    """As on macOS; a daemon in a session of its own is out of reach there."""
    elsewhere = f"import runpy, sys; sys.platform = 'darwin'; runpy.run_path({SUPERVISOR[-1]!r}, run_name='__main__')"
    group = f"(trap '' TERM; touch {tmp_path}/tree.$$; exec sleep 100) & exec sleep 0.1"
    control, to_control = os.pipe()
    from_status, status = os.pipe()
    popen = subprocess.Popen(
        [sys.executable, "-I", "-c", elsewhere, str(control), str(status), str(GRACE_S), "", "sh", "-c", group],
        pass_fds=(control, status),
        start_new_session=True,
    )
    os.close(control)
    os.close(status)
    try:
        assert popen.wait(GRACE_S + SLACK_S) == 0
        lines = os.read(from_status, 65536).decode().split("\n")
        group_id = int(lines[0].split()[1])
        assert lines[1:] == ["X 0", "E exited", "G", ""]
        with pytest.raises(ProcessLookupError):
            os.killpg(group_id, 0)
    finally:
        os.close(to_control)
        os.close(from_status)
