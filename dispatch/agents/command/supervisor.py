"""Stand between a worker and a command, and end the command with all that it started when its time is over.

A script of its own, run isolated: `python -I -S supervisor.py CONTROL STATUS GRACE_S LOCK ARGV…`. It imports nothing of
ours, so that it starts fast. The command leads a session and a group of its own; on Linux this process is the subreaper
of all its descendants, so that having no child left means that nothing of the command is left, daemons included.
Elsewhere only the command's group is reached.

CONTROL  lines from the worker: `L<monotonic time>` the lease is held until then, `T` end it. Closed: it is gone.
STATUS   lines to the worker: `P <pid>` started, `F <errno>` could not be, `X <wait status>` the command itself ended,
         `E <reason>` everything is being ended, `G` nothing is left.
LOCK     this process's own directory, if no other command of ours may run in it meanwhile, or "".
"""

from __future__ import annotations

import fcntl
import math
import os
import select
import signal
import sys
import time

LINUX = sys.platform.startswith("linux")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LOOK_AGAIN_S = 0.05  # where nothing tells of a change
KILL_AGAIN_S = (0.01, 1.0)
# Why everything is ended
EXITED, TOLD, WORKER_GONE, LEASE_OVER = "exited", "told", "worker", "lease"


def prctl(option: int, value: int) -> None:
    """Linux's prctl. Raise OSError."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Supervisor:
    """One command, from its start until nothing of it is left."""

    def __init__(self, *, control: int, status: int, grace_s: float) -> None:
        self._control, self._status, self._grace_s = control, status, grace_s
        self._heard = b""
        self._held_until = math.inf  # until the worker says for how long
        self._kill_at = math.inf
        self._kill_again_s = KILL_AGAIN_S[0]
        self._ending = False
        self._command = 0
        self._exited = False
        for number in (control, status):  # they came over an exec, and must not go over the next
            os.set_inheritable(number, False)
        os.set_blocking(control, False)
        self._woken, wake = os.pipe()
        for number in (self._woken, wake):
            os.set_blocking(number, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self._end(TOLD))
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def run(self, argv: list[str], lock: str) -> None:
        try:
            if LINUX:
                prctl(PR_SET_CHILD_SUBREAPER, 1)
                # a command may have frozen this process when the worker dies: awake it sees that the pipe is closed
                prctl(PR_SET_PDEATHSIG, signal.SIGCONT)
            started = self._take(lock) and self._start(argv)
        except OSError as error:
            self._say(f"F {error.errno}")
            started = False
        if started:
            while not self._nothing_left():
                self._wait(self._pause())
                self._look_at_the_time()
        self._say("G")

    # -- the command ---------------------------------------------------------------------------------------------------
    def _take(self, lock: str) -> bool:
        """Lock the directory; an older command's supervisor frees it when nothing of that command is left."""
        descriptor = os.open(".", os.O_RDONLY) if lock else -1
        while not self._ending:
            try:
                if lock:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if not os.path.samestat(os.stat(lock), os.fstat(descriptor)):  # removed or made anew meanwhile
                        raise FileNotFoundError(2, "removed", lock)
                self._wait(0)  # what has been said by now counts
                return not self._ending
            except BlockingIOError:
                self._wait(LOOK_AGAIN_S)
                self._look_at_the_time()
        return False

    def _start(self, argv: list[str]) -> bool:
        failed, fail = os.pipe()
        parent = os.getpid()
        self._command = os.fork()
        if self._command == 0:
            self._become(argv, fail, parent)
        os.close(fail)
        number = os.read(failed, 16)
        os.close(failed)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):  # held open here they would never end for the worker
            os.dup2(nowhere, standard)
        self._say(f"F {number.decode()}" if number else f"P {self._command}")
        return True

    @staticmethod
    def _become(argv: list[str], fail: int, parent: int) -> None:
        try:
            os.setsid()
            if LINUX:
                prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                if os.getppid() != parent:
                    os._exit(127)
            for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, not by what it was told
                signal.signal(ignored, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            os.execvp(argv[0], argv)
        except OSError as error:
            os.write(fail, str(error.errno).encode())
        finally:
            os._exit(127)

    # -- what happens meanwhile ----------------------------------------------------------------------------------------
    def _wait(self, seconds: float) -> None:
        limit = None if seconds == math.inf else max(0, math.ceil(min(seconds, 3600) * 1000))
        for number, _ in self._poll.poll(limit):
            if number == self._control:
                self._hear()
            else:
                os.read(self._woken, 4096)

    def _pause(self) -> float:
        left = min(self._held_until, self._kill_at) - time.monotonic()
        return min(left, LOOK_AGAIN_S) if self._exited and not LINUX else left

    def _hear(self) -> None:
        try:
            data = os.read(self._control, 65536)
        except BlockingIOError:
            return
        if not data:
            self._poll.unregister(self._control)
            self._held_until = math.inf
            self._end(WORKER_GONE)
        *lines, self._heard = (self._heard + data).split(b"\n")
        for line in lines:
            if line == b"T":
                self._end(TOLD)
            elif line.startswith(b"L"):
                self._held_until = float(line[1:])

    def _look_at_the_time(self) -> None:
        now = time.monotonic()
        if now >= self._held_until:
            self._held_until = math.inf
            self._end(LEASE_OVER)
        if now >= self._kill_at:
            self._signal_all(signal.SIGKILL)
            # what forks faster than it is found is found again
            self._kill_at = now + self._kill_again_s
            self._kill_again_s = min(self._kill_again_s * 2, KILL_AGAIN_S[1])

    def _nothing_left(self) -> bool:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return LINUX or _is_empty(self._command)
            if pid == 0:
                return False
            if pid == self._command:
                self._exited = True
                self._say(f"X {status}")
                if not LINUX or _has_children():
                    self._end(EXITED)

    # -- the end -------------------------------------------------------------------------------------------------------
    def _end(self, reason: str) -> None:
        """SIGTERM to everything now, SIGKILL after the grace."""
        if self._ending:
            return
        self._ending = True
        self._kill_at = time.monotonic() + self._grace_s
        self._say(f"E {reason}")
        self._signal_all(signal.SIGTERM, signal.SIGCONT)  # a stopped one would not hear the first

    def _signal_all(self, *numbers: int) -> None:
        if not self._command:
            return
        found = _descendants(os.getpid()) if LINUX else []
        for number in numbers:
            if not self._exited or not LINUX:  # its id is its group's while it is not reaped, or the group has members
                _send(os.killpg, self._command, number)
            for pid in found:
                _send(os.kill, pid, number)

    def kill_all(self) -> None:
        """The last thing that one does who cannot go on."""
        self._signal_all(signal.SIGKILL)

    def _say(self, line: str) -> None:
        try:
            os.write(self._status, f"{line}\n".encode())
        except OSError:
            return  # the worker is gone; the control pipe says so too


def _send(how: object, target: int, number: int) -> None:
    try:
        how(target, number)  # type: ignore[operator]
    except (ProcessLookupError, PermissionError):
        return  # it has ended, or has become another user's


def _is_empty(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):  # macOS refuses a group of which only unreaped ones are left
        return True
    return False


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _descendants(of: int) -> list[int]:
    """All processes below `of`, by what /proc says of everybody's parent."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stat:
                    parent = int(stat.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue  # it has ended meanwhile
            children.setdefault(parent, []).append(int(name))
    found = list(children.get(of, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def main(control: str, status: str, grace_s: str, lock: str, *argv: str) -> None:
    supervisor = Supervisor(control=int(control), status=int(status), grace_s=float(grace_s))
    try:
        supervisor.run(list(argv), lock)
    except BaseException:
        supervisor.kill_all()
        raise
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
