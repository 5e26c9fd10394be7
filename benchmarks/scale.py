"""Time the fleet's reads on a Postgres store of a million sessions and jobs, in-process and over HTTP.

    python benchmarks/scale.py --sessions 1000000 --ready 50000 --runs 30

Fills a store of its own by SQL (some minutes and 2 GB), then prints one JSON line a read with p50, p95 and p99 in
milliseconds. Over HTTP it is a gunicorn with two workers and a client that keeps its connection.
"""

from __future__ import annotations

import argparse
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # run as a file, not as a module

from benchmarks.ground import ROOT, answers, ground, gunicorn_argv, postgres_server
from tests.support.processes import Proc, free_port, until

PATHS = (
    "/api/fleet/health",
    "/api/fleet/topology",
    "/api/fleet/topology?offset=100000",
    "/api/fleet/topology?status=failed",
    "/api/fleet/topology?domain=domain-7",
    "/api/fleet/autoscale",
    "/api/graph/jobs",
    "/metrics",
)


def python(env: Mapping[str, str], *arguments: object) -> str:
    argv = [sys.executable, *map(str, arguments)]
    return subprocess.run(argv, cwd=ROOT, env=dict(env), check=True, stdout=subprocess.PIPE, text=True).stdout


def over_http(env: Mapping[str, str], runs: int, log: Path) -> None:
    key = ["manage.py", "issue_api_key", "bench", "--tenant", "ops", "--scope", "read", "--platform"]
    token = python(env, *key).splitlines()[-1]
    port = free_port()
    with Proc("web", gunicorn_argv(port, 2), log=log, env=env, cwd=ROOT) as web:
        until(lambda: answers(port), 60, f"gunicorn answers\n{web.tail()}")
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        for path in PATHS:
            took, status = [], 0
            for _ in range(runs + 4):
                began = time.perf_counter()
                client.request("GET", path, headers={"Authorization": f"Bearer {token}"})
                answer = client.getresponse()
                answer.read()
                took.append((time.perf_counter() - began) * 1000)
                status = answer.status
                if status not in (200, 503):
                    raise RuntimeError(f"{path}: {status}")
            ordered = sorted(took[4:])  # both workers have opened their connections by then
            shares = {f"p{share}_ms": round(ordered[int((runs - 1) * share / 100)], 1) for share in (50, 95, 99)}
            print(json.dumps({"get": path, "status": status, **shares}), flush=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sessions", type=int, default=1_000_000, help="sessions, each with an ended job")
    parser.add_argument("--ready", type=int, default=50_000, help="jobs that wait, in the newest of the sessions")
    parser.add_argument("--runs", type=int, default=30, help="how often each read is timed (default 30)")
    args = parser.parse_args()
    if min(args.sessions, args.runs) < 1 or not 0 <= args.ready <= args.sessions:
        parser.error("--sessions and --runs are at least 1, --ready is at most --sessions")
    return args


def main() -> None:
    args = arguments()
    with postgres_server() as server, ground(server, {}) as env:
        print(python(env, "-m", "benchmarks.scale_load", args.sessions, args.ready).splitlines()[-1], flush=True)
        for line in python(env, "-m", "benchmarks.scale_reads", args.runs).splitlines():
            print(line, flush=True)
        over_http(env, args.runs, Path(env["AGENT_DATA_DIR"]) / "web.log")


if __name__ == "__main__":
    main()
