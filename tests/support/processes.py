"""Start the product's real processes in a test, signal them, and read what they wrote."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

Answer = TypeVar("Answer")


class NotInTime(AssertionError):
    """Something that a test waited for did not happen within its limit."""


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(check: Callable[[], Answer], within: float, what: str, every: float = 0.02) -> Answer:
    """The first true answer of `check`; NotInTime after `within` seconds."""
    end = time.monotonic() + within
    while not (answer := check()):
        if time.monotonic() > end:
            raise NotInTime(f"{what}: not within {within:g} s")
        time.sleep(every)
    return answer


class Proc:
    """One process that leads a group of its own; its output goes to one log file. Use it as a context manager."""

    def __init__(self, name: str, argv: Sequence[str | Path], *, log: Path, env: Mapping[str, str], cwd: Path) -> None:
        self.name, self.log = name, log
        with log.open("ab") as out:
            self.popen = subprocess.Popen(
                [str(part) for part in argv],
                env=dict(env),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self.pid = self.popen.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.end()
        if error is not None:
            error.add_note(self.tail())

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def signal(self, number: int) -> None:
        """To this process alone."""
        if self.alive:
            os.kill(self.pid, number)

    def signal_group(self, number: int) -> None:
        """To this process and all that it started and that stayed in its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """SIGKILL to this process alone, as an out-of-memory killer does; answer when it is gone."""
        self.signal(signal.SIGKILL)
        self.popen.wait(10)

    def wait(self, within: float) -> int:
        """The exit status; NotInTime with the end of the log."""
        try:
            return self.popen.wait(within)
        except subprocess.TimeoutExpired:
            raise NotInTime(f"{self.name} (pid {self.pid}) still runs after {within:g} s\n{self.tail()}") from None

    def wait_for_text(self, text: str, within: float) -> None:
        """Until the log holds `text`; fails at once when the process ends without it."""

        def seen() -> bool:
            ended = not self.alive
            if text in self.text():
                return True
            if ended:
                raise NotInTime(
                    f"{self.name} ended with {self.popen.returncode} before it said {text!r}\n{self.tail()}"
                )
            return False

        until(seen, within, f"{self.name} says {text!r}")

    def end(self, grace: float = 5) -> None:
        """SIGTERM, then SIGKILL to the group; nothing of it is left when this answers. A frozen one is thawed first."""
        if self.alive:
            self.signal_group(signal.SIGCONT)
            self.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.popen.wait(grace)
        self.signal_group(signal.SIGKILL)
        self.popen.wait(10)

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def tail(self, lines: int = 25) -> str:
        end = "\n".join(self.text().splitlines()[-lines:])
        return f"--- {self.name} (pid {self.pid}), end of its log ---\n{end}"
