"""How gunicorn serves the site. Flags on its command line win over this file.

The web processes of one master share a metrics directory, so that any of them answers a scrape for all. Its name must
be in the environment before prometheus_client is imported, which happens in the workers, after this file was read.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import IO, Any

from fleetsite.settings import FLEETSITE

bind = "127.0.0.1:8000"
workers = 2
worker_class = "gthread"
threads = 8  # a stream or a wait holds one
timeout = 90
keepalive = 75  # longer than clients and proxies keep an idle connection: who closes first never cuts off a request
control_socket_disable = True  # it would be one file in the home directory, whatever the data directory is
accesslog = None  # its lines would hold query strings

METRICS_ROOT = FLEETSITE.data_dir / "metrics"
METRICS = METRICS_ROOT / f"{FLEETSITE.worker_host_label}-{os.getpid()}"
os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(METRICS)

_held: list[IO[bytes]] = []


def on_starting(server: Any) -> None:
    """Begin with an empty directory, and clear away those of masters that were killed."""
    for other in METRICS_ROOT.glob("*"):
        if _is_left(other):
            shutil.rmtree(other, ignore_errors=True)
    shutil.rmtree(METRICS, ignore_errors=True)
    METRICS.mkdir(parents=True, mode=0o700)
    lock = open(METRICS / ".lock", "wb")  # noqa: SIM115 - held, by the workers too, until the last of them ends
    fcntl.flock(lock, fcntl.LOCK_EX)
    _held.append(lock)


def _is_left(directory: Path) -> bool:
    """Whether nobody holds the directory's lock."""
    try:
        with open(directory / ".lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held; or not there yet, because its master is just starting
        return False
    return True


def child_exit(server: Any, worker: Any) -> None:
    """Drop the gauges of a process that is gone; its counters stay."""
    from prometheus_client.multiprocess import mark_process_dead

    mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def on_exit(server: Any) -> None:
    shutil.rmtree(METRICS, ignore_errors=True)
