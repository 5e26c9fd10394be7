"""Worker processes that a demo starts, loses, and starts again; each is signalled by its own id."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import dispatch

ROOT = Path(dispatch.__file__).resolve().parents[1]
STOP_S = 10.0


@dataclass(eq=False, slots=True)
class Member:
    """One process and what was done to it last. `thaw`: what lets a frozen one go on."""

    process: subprocess.Popen[bytes]
    thaw: threading.Timer | None = None
    leaving: bool = False
    ready: bool = False

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    @property
    def healthy(self) -> bool:
        return self.alive and self.ready and self.thaw is None and not self.leaving


class Crew:
    """Keeps `size` workers running. `live_pids` names the processes that claim; it is empty while the store is away."""

    def __init__(
        self,
        size: int,
        *,
        options: Sequence[str],
        env: Mapping[str, str],
        logs: Path,
        live_pids: Callable[[], set[int]],
    ) -> None:
        self.size = size
        self.members: list[Member] = []
        self._argv = [sys.executable, "-m", "django", "run_dispatch_worker", *options]
        self._env = {**os.environ, **env}
        self._logs = logs
        self._live_pids = live_pids
        self._count = 0

    def keep(self) -> None:
        """Bury the dead, fill the ranks, and see who is ready."""
        self.members = [member for member in self.members if member.alive]
        while sum(not member.leaving for member in self.members) < self.size:
            self.members.append(self._start())
        if not all(member.ready for member in self.members):
            pids = self._live_pids()
            for member in self.members:
                member.ready = member.ready or member.process.pid in pids

    def healthy(self) -> list[Member]:
        return [member for member in self.members if member.healthy]

    def kill(self, member: Member) -> None:
        """SIGKILL, as an out-of-memory killer does."""
        self._send(member, signal.SIGKILL)
        member.process.wait()

    def terminate(self, member: Member) -> None:
        """SIGTERM: it hands back and leaves; another starts at once."""
        member.leaving = True
        self._send(member, signal.SIGTERM)

    def freeze(self, member: Member, seconds: float) -> None:
        """SIGSTOP for so long. A thread ends it: the caller may by then wait for a lock that the frozen one has."""

        def thaw() -> None:
            self._send(member, signal.SIGCONT)
            member.thaw = None

        member.thaw = threading.Timer(seconds, thaw)
        member.thaw.daemon = True
        self._send(member, signal.SIGSTOP)
        member.thaw.start()

    def heal(self) -> None:
        """Wait until every frozen one has gone on, and nobody is missing."""
        for member in self.members:
            if (thaw := member.thaw) is not None:
                thaw.join()
        self.keep()

    def stop(self) -> None:
        """End all of them: SIGTERM, then SIGKILL to what is left after 10 seconds."""
        for member in self.members:
            if (thaw := member.thaw) is not None:
                thaw.cancel()
            self._send(member, signal.SIGCONT)
            self._send(member, signal.SIGTERM)
        end = time.monotonic() + STOP_S
        for member in self.members:
            with suppress(subprocess.TimeoutExpired):
                member.process.wait(max(0.0, end - time.monotonic()))
            if member.alive:
                self._send(member, signal.SIGKILL)
                member.process.wait()
        self.members.clear()

    def _start(self) -> Member:
        self._count += 1
        with (self._logs / f"worker-{self._count:03d}.log").open("wb") as log:
            process = subprocess.Popen(
                self._argv,
                env=self._env,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C at the terminal is for the demo, which stops its workers itself
            )
        return Member(process)

    @staticmethod
    def _send(member: Member, number: int) -> None:
        with suppress(ProcessLookupError):
            member.process.send_signal(number)
