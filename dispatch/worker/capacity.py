"""How many turns a consumer runs at once: fixed, or grown while work waits and shrunk when it does not."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

SHRINK_S = 15.0  # so long must slots have stood empty
AUTO_PER_CORE = 32
BUSY = 0.8  # of one core: Python runs one thread at a time, so beyond it more turns would only wait for each other
LEAST_FREE_MEMORY = 0.1
LOOK_S = 0.5


def auto_capacity() -> int:
    """The bound that `auto` stands for, on this host."""
    return AUTO_PER_CORE * (os.cpu_count() or 1)


class Capacity:
    """Between `least` and `most`; of equal ones it never moves. Used by one consumer's loop.

    It doubles when a claim took every free slot and got all it asked for: then more may wait. `pressed` says that the
    process has no room for more turns, whatever waits.
    """

    def __init__(
        self,
        least: int,
        most: int,
        *,
        pressed: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.current = least
        self._least, self._most = least, most
        self._pressed, self._clock = pressed, clock
        self._peak, self._since = 0, clock()

    def claimed(self, got: int, *, wanted: int, taken: int) -> None:
        """After a claim: `taken` slots are in use now."""
        self._peak = max(self._peak, taken)
        if self.current < self._most and got == wanted and taken >= self.current and not self._pressed():
            self.current = min(self._most, self.current * 2)
            self._begin(taken)

    def rest(self, taken: int) -> None:
        """Each round: give up what stood empty for a while, and a quarter of it all when the process is pressed."""
        self._peak = max(self._peak, taken)
        if self.current == self._least or self._clock() - self._since < SHRINK_S:
            return
        wanted = self.current - self.current // 4 if self._pressed() else self._peak
        self.current = max(self._least, min(self.current, wanted))
        self._begin(taken)

    def _begin(self, taken: int) -> None:
        self._peak, self._since = taken, self._clock()


class ProcessPressure:
    """Whether this process is at what it can do: most of a core used, or the host's memory nearly full."""

    def __init__(self) -> None:
        self._at, self._used = time.monotonic(), time.process_time()
        self._share = 0.0

    def __call__(self) -> bool:
        now, used = time.monotonic(), time.process_time()
        if now - self._at >= LOOK_S:
            self._share = (used - self._used) / (now - self._at)
            self._at, self._used = now, used
        free = free_memory()
        return self._share > BUSY or (free is not None and free < LEAST_FREE_MEMORY)


def free_memory(meminfo: Path = Path("/proc/meminfo")) -> float | None:
    """The share of the host's memory that is available; None where the system does not say."""
    try:
        lines = meminfo.read_text().splitlines()
        sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return sizes["MemAvailable"] / sizes["MemTotal"]
    except (OSError, ValueError, KeyError, IndexError, ZeroDivisionError):
        return None
