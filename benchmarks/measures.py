"""One measure, in a process of its own whose environment names the store: `python -m benchmarks.measures NAME JSON`.

The last line of output is a JSON object of numbers; `value` is the one that the measure is about.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import django

django.setup()

from django.db import connection  # noqa: E402  (Django's settings come first)

from benchmarks import broker, loads, over_http, recovery, scale_load  # noqa: E402
from benchmarks.ground import ROOT, worker_argv  # noqa: E402
from dispatch import wiring  # noqa: E402
from dispatch.maintenance.pruner import Pruner  # noqa: E402
from dispatch.maintenance.pruner import prune as prune_all  # noqa: E402
from dispatch.maintenance.retention import Policy  # noqa: E402
from dispatch.models import DispatchWorker, WorkItem  # noqa: E402
from dispatch.ports import Lease, Serves, Settlement  # noqa: E402
from tests.support.processes import Proc, until  # noqa: E402

Numbers = dict[str, float]
LONGEST_S = 600.0
PICKUP_GAP_S = 0.05
PICKUP_S = 20.0
HOLD_S = 20.0
HOT_SHARE = 0.8
HOT_DRAINED = 5000
PRUNE_ALONE = 2_000
PRUNE_READY = 30_000  # more than are claimed meanwhile
LIMITED_S = 0.5
PRUNE_GAP_S = 0.005


@contextmanager
def worker(args: Namespace) -> Iterator[Proc]:
    """The worker processes of the command line, of which it answers the first."""
    argv = worker_argv("--workers", args.workers, "--capacity", args.capacity)
    with ExitStack() as stack:
        started = []
        for number in range(args.processes):
            log = Path(os.environ["AGENT_DATA_DIR"]) / f"worker-{number}.log"
            started.append(stack.enter_context(Proc("worker", argv, log=log, env=os.environ, cwd=ROOT)))
        yield started[0]


def scalar(query: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query)
        row = cursor.fetchone()
    return row[0] if row else None


def finished() -> int:
    """Turns that are durably settled: settlement adds to the counters in the commit that ends the turn."""
    return int(scalar("SELECT coalesce(sum(count), 0) FROM turn_counters WHERE outcome <> 'skipped'"))


def finished_elsewhere() -> int:
    """The same without those of the hot session."""
    hot = scalar("SELECT coalesce(max(turn_number), 0) FROM sessions WHERE session_id = 'hot'")
    return finished() - int(hot)


def vacuum() -> None:
    """Statistics as a server has them that has been up for a while."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("VACUUM ANALYZE")


def drain_rate(args: Namespace, target: int) -> Numbers:
    """Turns a second, from the poll that saw the first finished turns to the one that saw the last of `target`.

    The worker's start is outside; a settlement that many turns share is inside.
    """
    vacuum()
    with worker(args) as process:
        end = time.monotonic() + LONGEST_S
        first: tuple[float, int] | None = None
        elsewhere = 0
        while True:
            count, now = finished(), time.monotonic()
            if count and first is None:
                first, elsewhere = (now, count), finished_elsewhere()
            if count >= target:
                break
            if not process.alive or now > end:
                raise RuntimeError(f"{count} of {target} turns were finished\n{process.tail()}")
            time.sleep(0.005 if first is None else 0.02)
        assert first is not None
        if now <= first[0]:
            raise RuntimeError("too few jobs: the first look saw them all finished")
        elsewhere, seconds = finished_elsewhere() - elsewhere, now - first[0]
        return {"value": (count - first[1]) / seconds, "elsewhere_jobs_s": elsewhere / seconds, "seconds": seconds}


def enqueue(args: Namespace) -> Numbers:
    """Durable dispatches a second, one by one."""
    bodies = loads.even(args.jobs, args.sessions)
    loads.dispatch_one(bodies[0])  # opens the connections
    began = time.monotonic()
    for fields in bodies:
        loads.dispatch_one(fields)
    return {"value": args.jobs / (time.monotonic() - began)}


def bulk(args: Namespace) -> Numbers:
    """Durable dispatches a second, in lists of 1,000."""
    bodies = loads.even(args.jobs, args.sessions)
    loads.dispatch_one(bodies[0])
    began = time.monotonic()
    loads.dispatch_all(bodies)
    return {"value": args.jobs / (time.monotonic() - began)}


def http(args: Namespace) -> Numbers:
    """Dispatches a second over REST, from eight clients to gunicorn with two processes."""
    latencies, took, busy = over_http.requests(args, database_busy_s)
    ordered = sorted(seconds * 1000 for seconds in latencies)
    numbers = {
        "value": len(latencies) / took,
        "p50_ms": quantile(ordered, 0.5),
        "p99_ms": quantile(ordered, 0.99),
    }
    if busy is not None:
        numbers["database_share"] = busy / sum(latencies)
    return numbers


def database_busy_s() -> float | None:
    """Seconds that Postgres has spent on statements in this database; None where nobody counts them."""
    if connection.vendor != "postgresql":
        return None
    scalar("SELECT pg_stat_clear_snapshot()")
    time.sleep(1.5)  # a backend reports what it did at most once a second
    return float(scalar("SELECT active_time FROM pg_stat_database WHERE datname = current_database()")) / 1000


def drain(args: Namespace) -> Numbers:
    """Queued no-op turns a second until all are finished."""
    loads.dispatch_all(loads.even(args.jobs, args.sessions))
    numbers = drain_rate(args, args.jobs)
    if WorkItem.objects.exclude(status="succeeded").exists():
        raise RuntimeError("a turn did not succeed")
    return numbers


def limited(args: Namespace) -> Numbers:
    """Queued no-op turns a second under a cap and a rate that hold nothing back, and without: what it costs to keep to
    them. In windows that take turns while one worker drains one queue, so that what else the machine does meets both.
    """
    loads.dispatch_all(loads.even(args.jobs, args.sessions))
    vacuum()
    cap = args.processes * args.workers * args.capacity
    counts, seconds = {True: 0, False: 0}, {True: 0.0, False: 0.0}
    with worker(args):
        until(finished, 60, "the worker has begun")
        under = False
        while True:
            under = not under
            loads.limit("noop", max_running=cap, rate_per_s=1_000_000.0) if under else loads.unlimit("noop")
            time.sleep(LIMITED_S / 10)  # the step that was under way
            count, began = finished(), time.monotonic()
            time.sleep(LIMITED_S)
            more, now = finished(), time.monotonic()
            if more >= args.jobs:
                break
            counts[under] += more - count
            seconds[under] += now - began
    rates = {how: counts[how] / seconds[how] for how in (True, False)}
    return {"value": rates[True] / rates[False], "limited_jobs_s": rates[True], "free_jobs_s": rates[False]}


def backlog_even(args: Namespace) -> Numbers:
    """The first 5,000 of a long queue in which no session is hot."""
    loads.dispatch_all(loads.even(args.jobs, args.sessions))
    return drain_rate(args, min(HOT_DRAINED, args.jobs))


def backlog_hot(args: Namespace) -> Numbers:
    """The first 5,000 of a queue as long, of which four fifths belong to one session."""
    loads.dispatch_all(loads.mixed(args.jobs, int(args.jobs * HOT_SHARE), args.sessions))
    return drain_rate(args, min(HOT_DRAINED, args.jobs))


def backlog_blocked(args: Namespace) -> Numbers:
    """The first 5,000 of the other sessions, while the first turn of the hot one, queued before all, runs on and on.

    It holds a slot, so the worker has one more.
    """
    hot = int(args.jobs * HOT_SHARE)
    loads.dispatch_one(loads.body("hot", "hold", payload={"seconds": LONGEST_S}))
    loads.dispatch_all([loads.body("hot")] * (hot - 1) + loads.even(args.jobs - hot, args.sessions - 1))
    args.capacity += 1
    return drain_rate(args, min(HOT_DRAINED, args.jobs - hot))


def pickup(args: Namespace) -> Numbers:
    """Milliseconds from the return of a dispatch to the first line of its agent in an idle worker."""
    with tempfile.TemporaryDirectory(prefix="fleetsite-stamps-") as place, worker(args):
        stamps = Path(place) / "stamps"
        until(DispatchWorker.objects.exists, 30, "the worker is registered")
        for number in (1, 2):
            loads.dispatch_one(loads.body("warm", "stamp", payload={"file": str(stamps)}))
            until(lambda wanted=number: finished() == wanted, 30, "the first turns ran")  # type: ignore[misc]
        stamps.unlink()
        returned: list[float] = []
        began = time.monotonic()
        for number in range(int(PICKUP_S / PICKUP_GAP_S)):
            time.sleep(max(0.0, began + number * PICKUP_GAP_S - time.monotonic()))
            fields = loads.body(f"s-{number % args.sessions}", "stamp", payload={"file": str(stamps)})
            loads.dispatch_one(fields | {"task": str(number)})
            returned.append(time.monotonic())
        until(lambda: finished() == len(returned) + 2, 30, "every turn ran")
        begun = {int(task): float(at) for task, at in map(str.split, stamps.read_text().splitlines())}
    waits = sorted((begun[number] - at) * 1000 for number, at in enumerate(returned))
    return {
        "value": quantile(waits, 0.99),
        "p50_ms": quantile(waits, 0.5),
        "p95_ms": quantile(waits, 0.95),
        "max_ms": waits[-1],
    }


def quantile(ordered: list[float], share: float) -> float:
    """By linear interpolation."""
    at = (len(ordered) - 1) * share
    low = int(at)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (at - low)


def hold(args: Namespace) -> Numbers:
    """Peak memory in MiB of a worker that holds all jobs at once, each for 20 s, and how many leases were renewed."""
    bodies = [loads.body(f"h-{number}", "hold", payload={"seconds": HOLD_S}) for number in range(args.jobs)]
    loads.dispatch_all(bodies)
    with worker(args) as process:
        items = WorkItem.objects.filter(agent_name="hold")
        running = items.filter(status="running")
        until(lambda: running.count() == args.jobs, 60, "every turn is held")
        first = dict(items.values_list("pk", "lease_expires_at"))
        held_at_once, held = running.count(), time.monotonic()
        renewed: set[int] = set()
        while time.monotonic() < held + HOLD_S * 0.8 and running.exists():
            now = dict(running.values_list("pk", "lease_expires_at"))
            renewed |= {pk for pk, ends in now.items() if (was := first[pk]) and ends and ends > was}
            time.sleep(0.5)
        until(lambda: finished() == args.jobs, 120, "every turn ended")
        peak = peak_rss_mib(process.pid)
    once = items.filter(status="succeeded", attempt=1, epoch=1).count()
    return {
        "value": peak,
        "held_at_once": held_at_once,
        "leases_renewed": len(renewed),
        "succeeded_at_first_epoch": once,
    }


def prune(args: Namespace) -> Numbers:
    """Claim latency, p99 in ms, while a thread of the process deletes all ended jobs, as the leader's tick does.

    A step settles the turn that was claimed before and claims one. On Postgres the ended jobs, each of a session of its
    own, and those that wait are made by SQL.
    """
    step = Steps()
    if connection.vendor == "postgresql":
        scale_load.load(sessions=args.jobs, ready=min(args.jobs, PRUNE_READY))
    else:
        loads.dispatch_all(loads.even(args.jobs, args.sessions))
        step.drain(args.jobs)
        loads.dispatch_all(loads.even(args.jobs, args.sessions))
    alone = step.latencies(lambda done: done < min(PRUNE_ALONE, args.jobs // 2))
    policy = Policy(jobs_age=timedelta(0), jobs_max=None, sessions_age=None, sessions_max=None, session_turns=0)
    removed: list[int] = []

    def run() -> None:
        removed.append(prune_all(Pruner(wiring.authority(), policy=policy, tables=())).total())
        connection.close()

    thread = threading.Thread(target=run)
    began = time.monotonic()
    thread.start()
    meanwhile = step.latencies(lambda done: thread.is_alive())
    thread.join()
    return {
        "value": quantile(meanwhile, 0.99),
        "p50_ms": quantile(meanwhile, 0.5),
        "max_ms": meanwhile[-1],
        "alone_p50_ms": quantile(alone, 0.5),
        "alone_p99_ms": quantile(alone, 0.99),
        "alone_max_ms": alone[-1],
        "claims_meanwhile": len(meanwhile),
        "rows": removed[0],
        "seconds": time.monotonic() - began,
    }


class Steps:
    """A claim loop without agents: each step settles what the last one claimed."""

    def __init__(self) -> None:
        self._serves = Serves(agents=("noop",), kinds=("orchestrator_task",))
        self._held: list[Lease] = []

    def step(self, want: int) -> int:
        settle = [Settlement(lease=lease, verb="succeeded", result=1, state={}) for lease in self._held]
        result = wiring.authority().step(
            owner="bench", ttl_s=60, settle=settle, want=want, serves=self._serves, cursor=""
        )
        self._held = list(result.claimed)
        return len(settle)

    def drain(self, jobs: int) -> None:
        ended = 0
        while ended < jobs:
            ended += self.step(50)

    def latencies(self, go_on: Callable[[int], bool]) -> list[float]:
        """Milliseconds of steps of one turn, ordered."""
        took: list[float] = []
        while go_on(len(took)):
            began = time.perf_counter()
            self.step(1)
            took.append((time.perf_counter() - began) * 1000)
            time.sleep(PRUNE_GAP_S)
        return sorted(took)


def peak_rss_mib(pid: int) -> float:
    """The most memory that the process has had resident, as the kernel kept it."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


MEASURES: dict[str, Callable[[Namespace], Numbers]] = {
    measure.__name__: measure
    for measure in (
        *(enqueue, bulk, http, drain, limited, backlog_even, backlog_hot, backlog_blocked),
        *(pickup, hold, prune),
        *(broker.bare, broker.publish),
        *(recovery.recovery, recovery.outage),
    )
}

if __name__ == "__main__":
    print(json.dumps(MEASURES[sys.argv[1]](Namespace(**json.loads(sys.argv[2])))))
