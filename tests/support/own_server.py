"""A server that a test starts for itself: with a directory of its own, stopped by its id, gone afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self


class OwnServer(ABC):
    """`with Server() as server:` starts and removes it; meanwhile it can be stopped, killed and started again.

    `start` sets `_home`, the directory, on first use, and `_server`, a process in a group of its own.
    """

    STOP: ClassVar[int] = signal.SIGTERM  # ends it in order
    REMOVE: ClassVar[int] = signal.SIGTERM  # ends it when its data go as well

    def __init__(self) -> None:
        self._home: Path | None = None
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.remove()

    @abstractmethod
    def start(self) -> None:
        """Make its data on first use, start it, answer when it can be used."""

    def stop(self, number: int | None = None) -> None:
        """Stop it and keep its data. Without a signal's number in order; SIGKILL is a crash."""
        server, self._server = self._server, None
        if server is None:
            return
        server.send_signal(self.STOP if number is None else number)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait(10)

    def restart(self, number: int | None = None) -> None:
        self.stop(number)
        self.start()

    def remove(self) -> None:
        """Stop it and delete all that it wrote."""
        self.stop(self.REMOVE)
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None
