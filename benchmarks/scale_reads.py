"""Times reads of a store that `scale_load` has filled, in this process: `python -m benchmarks.scale_reads RUNS`.

One JSON line a read: milliseconds, p50, p95, p99.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import django

django.setup()

from django.conf import settings  # noqa: E402  (Django's settings come first)
from django.utils import timezone  # noqa: E402

from benchmarks.measures import quantile  # noqa: E402
from dispatch import selectors as jobs  # noqa: E402
from dispatch import wiring  # noqa: E402
from dispatch.access import Caller  # noqa: E402
from dispatch.models import DispatchWorker  # noqa: E402
from fleet import selectors  # noqa: E402
from fleet.autoscale import AutoscaleQuery, autoscale_read  # noqa: E402
from fleet.metrics import exposition  # noqa: E402
from fleet.topology import TopologyQuery, health_read, topology_read  # noqa: E402

SCOPES = frozenset({"read"})
PLATFORM = Caller(tenant="ops", name="bench", kind="key", scopes=SCOPES, platform=True)
TENANT = Caller(tenant="tenant-7", name="bench", kind="key", scopes=SCOPES)


def topology(caller: Caller, **asked: object) -> Callable[[], object]:
    query = TopologyQuery.model_validate(asked)
    return lambda: topology_read(caller=caller, query=query)


READS: dict[str, Callable[[], object]] = {
    "health": lambda: health_read(caller=PLATFORM),
    "health, tenant": lambda: health_read(caller=TENANT),
    "topology": topology(PLATFORM),
    "topology, offset 100000": topology(PLATFORM, offset=100_000),
    "topology, status=failed": topology(PLATFORM, status="failed"),
    "topology, status=needs_input": topology(PLATFORM, status="needs_input"),
    "topology, domain": topology(PLATFORM, domain="domain-7"),
    "topology, tenant": topology(TENANT),
    "topology, tenant, offset 40000": topology(TENANT, offset=40_000),
    "jobs": lambda: jobs.job_list(caller=PLATFORM),
    "jobs, tenant": lambda: jobs.job_list(caller=TENANT),
    "jobs, tenant, status=failed": lambda: jobs.job_list(caller=TENANT, status="failed"),
    "jobs, tenant, status=running": lambda: jobs.job_list(caller=TENANT, status="running"),
    "jobs, tenant, status=pending": lambda: jobs.job_list(caller=TENANT, status="pending"),
    "jobs, tenant, agent of none": lambda: jobs.job_list(caller=TENANT, agent_name="nobody"),
    "jobs, session": lambda: jobs.job_list(caller=TENANT, session_id="session-00000007"),
    "sessions, tenant": lambda: jobs.session_list(caller=TENANT),
    "sessions, tenant, status=needs_input": lambda: jobs.session_list(caller=TENANT, status="needs_input"),
    "turns_without_worker": lambda: selectors.turns_without_worker(selectors.workers_live()),
    "convergence_findings": jobs.convergence_findings,
    "session_counts": lambda: selectors.session_counts(tenant=None),
    "autoscale": lambda: autoscale_read(caller=PLATFORM, query=AutoscaleQuery()),
    "metrics": lambda: exposition(accept="text/plain", store_wide=True),
    "release tick": lambda: wiring.authority().transitions.release_waiting(),
}


def a_worker() -> None:
    """One live consumer, whose agents are not the ones that wait: the most that the evidence has to count."""
    now = timezone.now()
    DispatchWorker.objects.update_or_create(
        worker_id=f"bench:{os.getpid()}:agent-dispatch:0",
        defaults={
            "token": "bench",
            "host": "bench",
            "pid": os.getpid(),
            "capacity": 2,
            "queue_backend": "PostgresQueueBackend",
            "version": "0",
            "agents": ["other"],
            "kinds": ["orchestrator_task"],
            "started_at": now,
            "last_heartbeat": now + timedelta(hours=1),
        },
    )


def timed(read: Callable[[], object], runs: int) -> dict[str, float]:
    took = []
    for _ in range(runs + 2):
        began = time.perf_counter()
        read()
        took.append((time.perf_counter() - began) * 1000)
    ordered = sorted(took[2:])  # the first ones open connections and warm the cache
    return {f"p{share}_ms": round(quantile(ordered, share / 100), 1) for share in (50, 95, 99)}


def main(runs: int, names: list[str]) -> None:
    assert settings.FLEETSITE.state_db_uri is not None
    a_worker()
    for name, read in READS.items():
        if not names or name in names:
            print(json.dumps({"read": name, **timed(read, runs)}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
