"""A fleet on paper: thousands of workers and their sessions drive the SQLite authority by a clock that is simulated.

    python benchmarks/simulate.py [--workers 1000] [--sessions 100000] [--seed 1]

The authority, its statements and its store are the real ones; workers, their agents, the network and the time are not.
Each session begins at some moment and sends its turns one by one or all at once; turns take their time, are retried and
snoozed; workers crash and come back under another name, or are cut off and settle late. When all is over the proof of
`dispatch_demo` reads the store: nothing lost, committed twice, out of order, or with another's state. The last line is
the report, as JSON: beside the counts, how long each kind of call really kept the one writer of SQLite, in the mean and
as a share of the simulated time in which sessions begin, and how many such workers would keep it all the time: the
limit of one store.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import json
import os
import random
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.ground import ground  # noqa: E402

if TYPE_CHECKING:
    from dispatch.authority import WorkAuthority
    from dispatch.demo.journal import Run
    from dispatch.ports import Lease, Settlement

TENANTS = 20
AGENT = "echo"
SLOTS = 4  # turns at once in a worker
TTL_S, RENEW_S, TICK_S, WAKE_S, GROUP_S = 120.0, 30.0, 5.0, 0.002, 0.005
TURN_S = 20.0  # of a turn, in the mean
BUSY = 0.6  # of all slots, while sessions begin
CRASH_EVERY_S, AWAY_S = 3600.0, (1.0, 30.0)  # of each worker
CUT_EVERY_S, CUT_S = 1800.0, (1.0, 300.0)
RETRIED, SNOOZED = 0.02, 0.01
ATTEMPTS = 1000  # nothing is given up: what is admitted has to succeed


@dataclass(slots=True, eq=False)
class Worker:
    """One worker process of one life: another one comes after a crash."""

    owner: str
    held: dict[int, Lease] = field(default_factory=dict)
    ended: list[Settlement] = field(default_factory=list)
    alive: bool = True
    cut_until: float = 0.0
    asked: bool = False  # a step of it is on its way


class Simulation:
    """Events in the order of their simulated time; what they do to the authority is real."""

    def __init__(self, authority: WorkAuthority, *, workers: int, sessions: int, seed: int) -> None:
        from dispatch.ports import Serves

        self._authority, self._random = authority, random.Random(seed)
        self._serves = Serves(agents=(AGENT,), kinds=("orchestrator_task",))
        self._count = itertools.count()
        self.now, self._began = 0.0, datetime(2030, 1, 1, tzinfo=UTC)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._idle: deque[Worker] = deque()
        self.busy: defaultdict[str, float] = defaultdict(float)
        self.load: dict[str, float] = {}
        self.calls: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.handles: dict[str, str] = {}
        self.runs: dict[str, Run] = {}
        self._open: set[str] = set()
        self._begin_over = sessions * self._mean_turns() * TURN_S / (workers * SLOTS * BUSY)
        for number in range(workers):
            self._at(0.0, self._start, number, 0)
        self._at(TICK_S, self._tick)
        for number in range(sessions):
            self._at(self._random.uniform(0, self._begin_over), self._session, number)

    # -- time ----------------------------------------------------------------------------------------------------------
    def clock(self) -> datetime:
        return self._began + timedelta(seconds=self.now)

    def _at(self, when: float, act: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._events, (when, next(self._count), act, args))

    def _after(self, delay: float, act: Callable[..., None], *args: Any) -> None:
        self._at(self.now + delay, act, *args)

    def run(self, tell: Callable[[str], None]) -> None:
        """Until every session has begun and every turn has ended."""
        told = time.monotonic()
        self._at(self._begin_over, self._note_load)
        while self._open or self.now < self._begin_over:
            self.now, _, act, args = heapq.heappop(self._events)
            act(*args)
            if time.monotonic() - told > 10:
                told = time.monotonic()
                tell(f"{self.now:,.0f} s simulated, {len(self.handles):,} turns, {len(self._open):,} of them open")

    def _note_load(self) -> None:
        """While sessions begin the fleet is evenly busy: what comes after is its end."""
        self.load = {kind: seconds / self.now for kind, seconds in sorted(self.busy.items())}

    @contextmanager
    def _real(self, kind: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.busy[kind] += time.perf_counter() - began
        self.calls[kind] += 1

    # -- callers -------------------------------------------------------------------------------------------------------
    @staticmethod
    def _mean_turns() -> float:
        return 0.9 * 1 + 0.0999 * 4 + 0.0001 * 200

    def _session(self, number: int) -> None:
        """One turn mostly, some a few, the odd one hundreds; a third of them sends all at once."""
        kind = self._random.random()
        turns = 1 if kind < 0.9 else self._random.randint(2, 6) if kind < 0.9999 else 200
        if self._random.random() < 1 / 3:
            self._submit(number, turns)
            return
        for turn in range(turns):
            self._after(turn * self._random.uniform(0, 2 * TURN_S), self._submit, number, 1)

    def _submit(self, number: int, turns: int) -> None:
        from dispatch.authority.submit import NewItem

        session = f"s-{number}"
        items = [
            NewItem(
                job_id=f"sim-{next(self._count)}",
                tenant=f"t{number % TENANTS}",
                session_id=session,
                kind="orchestrator_task",
                agent_name=AGENT,
                priority=self._random.choice((0, 1, 2, 2, 2, 3)),
                max_attempts=ATTEMPTS,
                on_worker_lost="retry",
                task="",
            )
            for _ in range(turns)
        ]
        with self._real("submit"):
            answers = self._authority.submit(items)
        for one in answers:
            assert one.error is None, one.error
            self.handles[one.job_id] = session
            self._open.add(one.job_id)
        self._wake(1)

    # -- workers -------------------------------------------------------------------------------------------------------
    def _start(self, number: int, life: int) -> None:
        worker = Worker(f"w{number}.{life}")
        self._idle.append(worker)
        self._after(self._random.uniform(0, RENEW_S), self._renew, worker)
        self._after(self._random.expovariate(1 / CRASH_EVERY_S), self._crash, worker, number, life)
        self._after(self._random.expovariate(1 / CUT_EVERY_S), self._cut, worker)
        self._wake(1)

    def _crash(self, worker: Worker, number: int, life: int) -> None:
        self.seen["crashes"] += 1
        worker.alive = False
        self._after(self._random.uniform(*AWAY_S), self._start, number, life + 1)

    def _cut(self, worker: Worker) -> None:
        """Its agents go on; it neither renews nor settles nor claims until the network is back."""
        if worker.alive:
            self.seen["cuts"] += 1
            worker.cut_until = self.now + self._random.uniform(*CUT_S)
            self._at(worker.cut_until, self._ask, worker)
            self._after(self._random.expovariate(1 / CUT_EVERY_S), self._cut, worker)

    def _connected(self, worker: Worker) -> bool:
        return worker.alive and self.now >= worker.cut_until

    def _wake(self, count: int) -> None:
        """Let so many idle workers look. Those that cannot are not idle: they come again by themselves."""
        while count and self._idle:
            worker = self._idle.popleft()
            if self._connected(worker):
                count -= 1
                self._after(WAKE_S, self._ask, worker)

    def _ask(self, worker: Worker) -> None:
        if not worker.asked:
            worker.asked = True
            self._after(GROUP_S, self._step, worker)

    def _step(self, worker: Worker) -> None:
        worker.asked = False
        if not self._connected(worker):
            return
        want = SLOTS - len(worker.held) + len(worker.ended)
        with self._real("step"):
            answer = self._authority.step(
                owner=worker.owner,
                ttl_s=TTL_S,
                settle=worker.ended,
                want=want,
                serves=self._serves,
                cursor="",
            )
        for one in answer.settled:
            self.seen[one.verb] += 1
            if one.status == "succeeded":
                self._open.remove(worker.held[one.item_id].job_id)
        self.seen["settled late, refused"] += len(answer.lost)
        for settlement in worker.ended:
            del worker.held[settlement.lease.item_id]
        worker.ended = []
        for lease in answer.claimed:
            self._begin(worker, lease)
        if len(answer.claimed) < want:
            self._idle.append(worker)
        self._wake(min(len(answer.settled) + len(answer.claimed), 2))

    def _begin(self, worker: Worker, lease: Lease) -> None:
        from dispatch.demo.journal import Run

        run = Run(
            job=lease.job_id,
            run=f"r{next(self._count)}",
            pid=0,
            begin=self.now,
            attempt=lease.attempt,
            seen=lease.state.get("turns", 0),
            last=lease.state.get("last"),
        )
        self.runs[run.run] = run
        worker.held[lease.item_id] = lease
        self._after(self._random.lognormvariate(0, 1) * TURN_S / 1.65, self._end, worker, lease, run)

    def _end(self, worker: Worker, lease: Lease, run: Run) -> None:
        from dispatch.ports import Settlement
        from dispatch.states import Verb

        if not worker.alive or worker.held.get(lease.item_id) is not lease:
            return  # it died with its worker, or was given up when its lease was lost
        run.end = self.now
        fate = self._random.random()
        if fate < RETRIED + SNOOZED:
            verb = Verb.RETRY if fate < RETRIED else Verb.SNOOZE
            worker.ended.append(
                Settlement(lease=lease, verb=verb, delay_s=self._random.uniform(1, 60), code="agent_error")
            )
        else:
            state = {"turns": run.seen + 1, "last": run.run}
            worker.ended.append(Settlement(lease=lease, verb=Verb.SUCCEEDED, result={"run": run.run}, state=state))
        self._ask(worker)

    def _renew(self, worker: Worker) -> None:
        if not worker.alive:
            return
        self._after(RENEW_S, self._renew, worker)
        ended = {one.lease.item_id for one in worker.ended}
        leases = [lease.fence for lease in worker.held.values() if lease.item_id not in ended]
        if not leases or not self._connected(worker):
            return
        with self._real("renew"):
            answer = self._authority.renew(ttl_s=TTL_S, leases=leases)
        for item_id in answer.lost:
            del worker.held[item_id]
            self.seen["leases lost"] += 1
        if answer.lost:
            self._ask(worker)

    # -- the leader ----------------------------------------------------------------------------------------------------
    def _tick(self) -> None:
        transitions = self._authority.transitions
        moved = 0
        for run in (transitions.due, transitions.expire, transitions.rescue, transitions.release_waiting):
            more = 1
            while more:
                with self._real("tick"):
                    more = run()
                moved += more
                self.seen["rescued"] += more if run == transitions.rescue else 0
        self._wake(moved + 1)
        self._after(TICK_S, self._tick)


def simulate(args: argparse.Namespace, tell: Callable[[str], None]) -> dict[str, Any]:
    """One simulation on the store that the environment names, and its proof."""
    import django

    django.setup()
    from dispatch import wiring
    from dispatch.clock import told_by
    from dispatch.demo.history import prove

    authority = wiring.authority()
    simulation = Simulation(authority, workers=args.workers, sessions=args.sessions, seed=args.seed)
    began = time.monotonic()
    with told_by(simulation.clock):
        simulation.run(tell)
    took = time.monotonic() - began
    problems = []
    for number in range(TENANTS):
        handles = {job: name for job, name in simulation.handles.items() if int(name[2:]) % TENANTS == number}
        problems += prove(f"t{number}", handles, simulation.runs, 0).problems
    if left := authority.depth():
        problems.append(f"I5: {left} queue rows are left of turns that have ended")
    busy, calls = simulation.busy, simulation.calls
    return {
        "workers": args.workers,
        "sessions": args.sessions,
        "turns": len(simulation.handles),
        "runs": len(simulation.runs),
        "simulated_s": round(simulation.now),
        "real_s": round(took, 1),
        **{name.replace(", ", "_").replace(" ", "_"): count for name, count in sorted(simulation.seen.items())},
        "mean_ms": {kind: round(1000 * busy[kind] / calls[kind], 3) for kind in sorted(busy)},
        "share_of_the_writer": {kind: round(share, 4) for kind, share in simulation.load.items()},
        "limit_workers": round(args.workers / sum(simulation.load.values())),
        "problems": problems[:20],
    }


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workers", type=int, default=1_000, help="of four slots each")
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    if min(args.workers, args.sessions) < 1:
        parser.error("--workers and --sessions are at least 1")
    with ground(None, {"AGENT_DISPATCH_MAX_DEPTH": "100000000"}) as env:
        os.environ.update(env)
        report = simulate(args, lambda line: print(line, file=sys.stderr, flush=True))
    print(json.dumps(report))
    return 1 if report["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
