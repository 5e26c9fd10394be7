"""The worker's side of a supervised command: start it, hear of it, tell it to end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from dispatch.agents.command.output import PipeReader

T = TypeVar("T")

# isolated, and without site: it needs nothing of this installation, and is up sooner
SUPERVISOR = (sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py")))
DEAF_S = 2.0  # beyond the grace, after which the supervisor should be done
REAP_S = 0.005


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How to start a command. `alone`: no other command of ours may run in `cwd` meanwhile."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    alone: bool
    stdin: bytes
    grace_s: float


@dataclass(frozen=True, kw_only=True)
class Parts:
    """A started supervisor and this process's ends of its pipes."""

    popen: subprocess.Popen[bytes]
    control: int
    status: int
    stdout: int
    stderr: int


def spawn(plan: Plan) -> Parts:
    """Start the supervisor, which starts the command. Blocks for some milliseconds. Raise OSError."""
    with contextlib.ExitStack() as given:
        ends: list[int] = []

        def pipe() -> tuple[int, int]:
            ends.extend(os.pipe())
            return ends[-2], ends[-1]

        try:
            control, to_control = pipe()
            from_status, status = pipe()
            stdout, to_stdout = pipe()
            stderr, to_stderr = pipe()
            stdin = given.enter_context(_stdin(plan.stdin))
            directory = str(plan.cwd) if plan.alone else ""
            popen = subprocess.Popen(
                [*SUPERVISOR, str(control), str(status), str(plan.grace_s), directory, *plan.argv],
                env=dict(plan.env),
                cwd=plan.cwd,
                stdin=stdin,
                stdout=to_stdout,
                stderr=to_stderr,
                pass_fds=(control, status),
                start_new_session=True,  # what ends or freezes the worker's group must not reach it
            )
        except BaseException:
            for number in ends:
                os.close(number)
            raise
    for number in (control, status, to_stdout, to_stderr):
        os.close(number)
    return Parts(popen=popen, control=to_control, status=from_status, stdout=stdout, stderr=stderr)


@contextlib.contextmanager
def _stdin(content: bytes) -> Iterator[IO[bytes]]:
    """An unlinked file: unlike a pipe it waits for nobody, and nobody waits for it."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.seek(0)
        yield file


class Running:
    """A supervised command. Its loop's, but for `hold_until`, which any thread may call."""

    def __init__(self, parts: Parts, grace_s: float) -> None:
        self.pid: int | None = None
        self.exit_code: int | None = None  # negative: ended by that signal
        self.failed_to_start: int | None = None  # an errno
        self.ended_for: str | None = None  # the supervisor's reason for ending everything
        self.stdout, self.stderr = parts.stdout, parts.stderr
        self._popen, self._grace_s = parts.popen, grace_s
        self._lock = threading.Lock()
        self._control: int | None = parts.control
        self._heard = b""
        self._gone = False
        self._told = False
        os.set_blocking(parts.control, False)  # a supervisor that does not read holds nobody up
        self._status = PipeReader(parts.status, self._hear)

    def hold_until(self, monotonic_s: float) -> None:
        """Say that the lease is held until then."""
        self._say(f"L{monotonic_s:.3f}")

    async def ended(self) -> None:
        """Return when nothing of the command is left."""
        await asyncio.shield(self._status.closed)
        while self._popen.poll() is None:
            await asyncio.sleep(REAP_S)
        self._close_control()
        if not self._gone:  # the supervisor was ended by somebody: its command has been sent a SIGKILL by the kernel
            self._kill_group()

    async def end(self) -> None:
        """Have everything ended, and return when nothing is left. Harmless when it has ended."""
        if not self._told:
            self._told = True
            self._say("T")
        limit_s = self._grace_s + DEAF_S
        while True:
            try:
                return await asyncio.wait_for(self.ended(), limit_s)
            except TimeoutError:
                # its command has frozen it, or has become what it may not signal: only the first can be helped
                self._popen.send_signal(signal.SIGCONT)
                self._kill_group()
                limit_s = 1.0

    # -- the pipes -----------------------------------------------------------------------------------------------------
    def _say(self, line: str) -> None:
        with self._lock:  # its number may be another file's once it is closed
            if self._control is not None:
                with contextlib.suppress(OSError):  # it has ended
                    os.write(self._control, f"{line}\n".encode())

    def _close_control(self) -> None:
        with self._lock:
            if self._control is not None:
                os.close(self._control)
                self._control = None

    def _hear(self, data: bytes) -> float:
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            word, _, value = line.decode().partition(" ")
            match word:
                case "P":
                    self.pid = int(value)
                case "F":
                    self.failed_to_start = int(value)
                case "X":
                    self.exit_code = os.waitstatus_to_exitcode(int(value))
                case "E":
                    self.ended_for = value
                case "G":
                    self._gone = True
        return 0.0

    def _kill_group(self) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)


async def undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """Await it to its end although this task may be cancelled meanwhile, as by a loop that is closed."""
    task = asyncio.create_task(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task})
    return task.result()


async def start(plan: Plan) -> Running:
    """Start the command off the loop. A cancel meanwhile ends it before it is raised. Raise OSError."""
    loop = asyncio.get_running_loop()
    parts = loop.run_in_executor(None, spawn, plan)
    try:
        return Running(await asyncio.shield(parts), plan.grace_s)
    except asyncio.CancelledError:
        started = await parts
        os.close(started.stdout)
        os.close(started.stderr)
        await Running(started, plan.grace_s).end()
        raise
