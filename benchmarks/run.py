"""Measure the product through its own services and real worker processes.

    python benchmarks/run.py --backend sqlite --measure drain --jobs 10000 --workers 1 --capacity 20 --runs 3

Prints one JSON line a run, then one with the medians. See docs/performance.md for what each measure is.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file, not as a module

from benchmarks.ground import RESTART, ROOT, ground, kafka_variables, postgres_server
from tests.support.kafka import KafkaBroker

Numbers = dict[str, float]
UNITS = {
    "enqueue": "jobs/s",
    "bulk": "jobs/s",
    "http": "requests/s",
    "drain": "jobs/s",
    "pickup": "ms (p99)",
    "hot": "times the rate without the hot session",
    "blocked": "times the rate without the hot session",
    "limited": "times the rate without a limit",
    "hold": "MiB",
    "bare": "messages/s",
    "publish": "envelopes/s",
    "prune": "ms (p99 of a claim)",
    "recovery": "s",
    "outage": "s",
}
BACKLOGS = ("hot", "blocked")
JOBS = {"http": 4_000, "hot": 50_000, "blocked": 50_000, "hold": 1_000, "prune": 20_000}
# renewals fall due while the turns wait
SHORT_LEASES = {"AGENT_DISPATCH_CLAIM_TTL_S": "15", "AGENT_DISPATCH_RENEW_INTERVAL_S": "5"}
OF_A_BROKER = ("bare", "publish", "outage")


def once(name: str, args: argparse.Namespace, server: str | None) -> Numbers:
    """One measure on ground of its own."""
    more = SHORT_LEASES if name in ("hold", "recovery") else {}
    broker: KafkaBroker | None = None
    with ExitStack() as stack:
        if args.backend == "kafka":
            broker = stack.enter_context(KafkaBroker())
            more = more | kafka_variables(broker, args.partitions)
        env = stack.enter_context(ground(server, more))
        options = {key: getattr(args, key) for key in ("jobs", "workers", "capacity", "sessions", "processes")}
        argv = [sys.executable, "-m", "benchmarks.measures", name, json.dumps(options)]
        numbers: Numbers = json.loads(measured(argv, env, broker))
    return {key: round(value, 3) for key, value in numbers.items()}


def measured(argv: Sequence[str], env: Mapping[str, str], broker: KafkaBroker | None) -> str:
    """The last line that the measure writes. The broker is killed and started again when it asks for that."""
    line = ""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(argv, cwd=ROOT, env=env, text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            if line.rstrip() == RESTART and broker is not None:
                broker.restart(signal.SIGKILL)
                print(file=process.stdin, flush=True)
    if process.returncode != 0:
        raise SystemExit(process.returncode)
    return line


def run(args: argparse.Namespace, number: int, server: str | None) -> Numbers:
    """One run of the measure; two for `hot` and `blocked`: the value is their ratio. They take turns in going first."""
    if args.measure not in BACKLOGS:
        return once(args.measure, args, server)
    order = ["backlog_even", f"backlog_{args.measure}"]
    found = {name: once(name, args, server) for name in (order if number % 2 else order[::-1])}
    even, other = (found[name] for name in order)
    return {
        "value": round(other["value"] / even["value"], 3),
        f"{args.measure}_jobs_s": other["value"],
        "elsewhere_jobs_s": other["elsewhere_jobs_s"],
        "even_jobs_s": even["value"],
    }


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backend", choices=("sqlite", "postgres", "kafka"), required=True)
    parser.add_argument("--measure", choices=sorted(UNITS), required=True)
    parser.add_argument(
        "--jobs", type=int, default=None, help="turns (default 10000; http 4000; hot, blocked 50000; hold 1000)"
    )
    parser.add_argument("--workers", type=int, default=1, help="claim loops of the worker process (default 1)")
    parser.add_argument("--processes", type=int, default=1, help="worker processes (default 1)")
    parser.add_argument("--partitions", type=int, default=6, help="kafka: of the topic (default 6)")
    parser.add_argument("--capacity", type=int, default=None, help="turns at once a loop (default 2; hold: all)")
    parser.add_argument("--sessions", type=int, default=100, help="sessions that the turns belong to (default 100)")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args(argv)
    args.jobs = args.jobs or JOBS.get(args.measure, 10_000)
    args.capacity = args.capacity or (args.jobs if args.measure == "hold" else 2)
    if args.measure in OF_A_BROKER and args.backend != "kafka":
        parser.error(f"--measure {args.measure} is for --backend kafka")
    if args.sessions < 2 or min(args.jobs, args.workers, args.capacity, args.processes, args.partitions, args.runs) < 1:
        parser.error("--sessions is at least 2, the other numbers at least 1")
    return args


def main() -> None:
    args = arguments()
    keys = ["backend", "measure", "jobs", "processes", "workers", "capacity", "sessions"]
    keys += ["partitions"] if args.backend == "kafka" else []
    asked = {key: getattr(args, key) for key in keys}
    line = {**asked, "unit": UNITS[args.measure]}
    runs: list[Numbers] = []
    with nullcontext() if args.backend == "sqlite" else postgres_server() as server:
        for number in range(1, args.runs + 1):
            runs.append(run(args, number, server))
            print(json.dumps({**line, "run": number, **runs[-1]}), flush=True)
    medians = {key: statistics.median(numbers[key] for numbers in runs) for key in runs[0]}
    print(json.dumps({**line, "median": medians.pop("value"), **medians, "runs": [n["value"] for n in runs]}))


if __name__ == "__main__":
    main()
