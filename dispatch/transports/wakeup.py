"""Wake idle workers of this host: one datagram socket per listener, in the data directory."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
from pathlib import Path

_DATAGRAM = b"w"


class WakeUp:
    """`wait` sleeps until somebody calls `wake`, in any process that shares the directory. Polling is the fallback.

    A socket path that is too long for the platform, or a platform without unix sockets, leaves polling alone.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sock: socket.socket | None = None
        self._path: Path | None = None

    def _listen(self) -> socket.socket | None:
        if self._sock is None and hasattr(socket, "AF_UNIX"):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._directory / f"{os.getpid()}.{secrets.token_hex(4)}"
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                sock.bind(str(path))
            except OSError:
                sock.close()
                return None
            sock.setblocking(False)
            self._sock, self._path = sock, path
        return self._sock

    def wait(self, timeout_s: float) -> bool:
        """True when woken, False when the time ran out."""
        sock = self._listen()
        if sock is None:
            select.select([], [], [], timeout_s)
            return False
        ready, _, _ = select.select([sock], [], [], timeout_s)
        if ready:
            self.drain()
        return bool(ready)

    def drain(self) -> None:
        if self._sock is not None:
            with contextlib.suppress(BlockingIOError):
                while self._sock.recv(16):
                    pass

    def wake(self) -> None:
        """Tell every listener; a dead one's socket file is removed."""
        if not hasattr(socket, "AF_UNIX"):
            return
        try:
            paths = list(os.scandir(self._directory))
        except OSError:
            return
        if not paths:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for entry in paths:
                try:
                    sender.sendto(_DATAGRAM, entry.path)
                except ConnectionRefusedError:
                    with contextlib.suppress(OSError):
                        os.unlink(entry.path)
                except OSError:
                    continue  # its buffer is full: it will wake all the same

    def another(self) -> WakeUp:
        """A listener of its own on the same directory; its owner closes it."""
        return WakeUp(self._directory)

    def close(self) -> None:
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        if self._path is not None:
            with contextlib.suppress(OSError):
                self._path.unlink()
            self._path = None
