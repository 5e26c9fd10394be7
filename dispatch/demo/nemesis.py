"""What goes wrong, on purpose: workers killed, frozen and told to leave, and whatever else a caller adds."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from dispatch.demo.crew import Crew


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """A fault of the caller's own. `outage`: the store is away until `act` returns, and a while longer."""

    name: str
    act: Callable[[], None]
    weight: float = 1.0
    outage: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Blow:
    """One fault that was dealt, in CLOCK_MONOTONIC. `signal` and `pid`: to which worker."""

    name: str
    at: float
    until: float
    signal: int = 0
    pid: int = 0
    outage: bool = False


OUTAGE_TAIL_S = 4.0  # a loop that went blind looks again after up to two seconds, and then claims
KILL, FREEZE, TERMINATE = "kill -9", "freeze", "SIGTERM"


class Nemesis:
    """Deals a fault every `every_s` seconds, in an order that the seed decides; one worker at least is left alone."""

    def __init__(
        self,
        crew: Crew,
        *,
        seed: int,
        every_s: float,
        freeze_s: float,
        freeze_is_outage: bool = False,
        faults: Sequence[Fault] = (),
        spare: int = 1,
    ) -> None:
        """`freeze_is_outage`: a frozen worker may hold the one lock of the store (a SQLite file)."""
        self.blows: list[Blow] = []
        self._crew = crew
        self._random = random.Random(seed)
        self._every_s = every_s
        self._freeze_s = freeze_s
        self._freeze_is_outage = freeze_is_outage
        self._faults = {fault.name: fault for fault in faults}
        self._spare = spare
        self._expected: defaultdict[str, float] = defaultdict(float)  # how often each should have come by now
        self._next = time.monotonic()

    def tallies(self) -> Counter[str]:
        return Counter(blow.name for blow in self.blows)

    def look(self) -> None:
        """Strike if it is time. A worker fault waits until enough workers are healthy; what is due is made up for."""
        if time.monotonic() < self._next:
            return
        names = {KILL: 1.0, FREEZE: 0.6, TERMINATE: 1.0} if len(self._crew.healthy()) > self._spare else {}
        names |= {fault.name: fault.weight for fault in self._faults.values()}
        if not names:
            return
        self._next = max(self._next + self._every_s, time.monotonic() - 5 * self._every_s)
        self._strike(self._chosen(names))

    def _chosen(self, names: Mapping[str, float]) -> str:
        """By weight; but a caller's fault that should have come by now and has not comes next: none is left to luck."""
        total = sum(names.values())
        for name, weight in names.items():
            self._expected[name] += weight / total
        dealt = self.tallies()
        late = [name for name in self._faults if self._expected[name] >= 1 and not dealt[name]]
        return late[0] if late else self._random.choices(list(names), list(names.values()))[0]

    def _strike(self, name: str) -> None:
        at = time.monotonic()
        if name in self._faults:
            fault = self._faults[name]
            fault.act()
            until = time.monotonic() + (OUTAGE_TAIL_S if fault.outage else 0.0)
            self.blows.append(Blow(name=name, at=at, until=until, outage=fault.outage))
            return
        member = self._random.choice(self._crew.healthy())
        number = {KILL: signal.SIGKILL, FREEZE: signal.SIGSTOP, TERMINATE: signal.SIGTERM}[name]
        until, outage = at, False
        if name == KILL:
            self._crew.kill(member)
        elif name == TERMINATE:
            self._crew.terminate(member)
        else:
            seconds = self._freeze_s * self._random.uniform(1.0, 1.5)
            self._crew.freeze(member, seconds)
            until, outage = at + seconds, self._freeze_is_outage
        self.blows.append(Blow(name=name, at=at, until=until, signal=number, pid=member.process.pid, outage=outage))
