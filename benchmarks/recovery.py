"""How long turns stand still when a worker, or the broker, dies."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from contextlib import ExitStack
from pathlib import Path

from benchmarks import loads
from benchmarks.ground import RESTART, ROOT, worker_argv
from dispatch.errors import DispatchError
from dispatch.models import DispatchWorker, WorkItem
from tests.support.processes import Proc, until

Numbers = dict[str, float]
OTHERS = 24
LONG_S = 600.0
PATIENCE_S = 180.0


def start(stack: ExitStack, args: Namespace) -> list[Proc]:
    """The worker processes; answers when all have shown themselves."""
    argv = worker_argv("--workers", args.workers, "--capacity", args.capacity)
    procs = [
        stack.enter_context(
            Proc("worker", argv, log=Path(os.environ["AGENT_DATA_DIR"]) / f"worker-{n}.log", env=os.environ, cwd=ROOT)
        )
        for n in range(args.processes)
    ]
    until(lambda: DispatchWorker.objects.count() == args.processes * args.workers, 60, "the workers are registered")
    return procs


def ran(agent: str) -> int:
    return WorkItem.objects.filter(agent_name=agent, status="succeeded").count()


def put(count: int) -> None:
    for number in range(count):
        loads.dispatch_one(loads.body(f"after-{number}"))


def recovery(args: Namespace) -> Numbers:
    """Seconds from the SIGKILL of a worker process until its turn runs in another one.

    `others_s`: until 24 turns of other sessions, dispatched right after the kill, have ended.
    """
    with ExitStack() as stack:
        procs = start(stack, args)
        put(OTHERS)
        until(lambda: ran("noop") == OTHERS, PATIENCE_S, "the group has settled")
        loads.dispatch_one(loads.body("killed", "hold", payload={"seconds": LONG_S}))
        held = WorkItem.objects.filter(agent_name="hold", status="running")
        until(held.exists, 60, "the turn runs")
        owner = held.get().owner
        pid = int(DispatchWorker.objects.get(token=owner).worker_id.split(":")[1])
        next(proc for proc in procs if proc.pid == pid).kill()
        killed = time.monotonic()
        put(OTHERS)
        until(lambda: ran("noop") == 2 * OTHERS, PATIENCE_S, "turns of other sessions end")
        others = time.monotonic() - killed
        until(held.exclude(owner=owner).exists, PATIENCE_S, "the turn runs elsewhere")
        return {"value": time.monotonic() - killed, "others_s": others}


def outage(args: Namespace) -> Numbers:
    """Seconds from the moment at which a killed broker listens again until a dispatch is admitted, and has run.

    `admitted_s`: until it is admitted. Whoever runs this restarts the broker when it is asked to, and answers.
    """
    with ExitStack() as stack:
        start(stack, args)
        put(OTHERS)
        until(lambda: ran("noop") == OTHERS, PATIENCE_S, "the group has settled")
        print(RESTART, flush=True)
        sys.stdin.readline()
        back = time.monotonic()

        def admitted() -> bool:
            try:
                loads.dispatch_one(loads.body("afterwards"))
            except DispatchError:
                return False
            return True

        until(admitted, PATIENCE_S, "it is admitted")
        numbers = {"admitted_s": time.monotonic() - back}
        until(lambda: ran("noop") == OTHERS + 1, PATIENCE_S, "it has run")
        return {"value": time.monotonic() - back, **numbers}
