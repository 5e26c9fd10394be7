"""Where one run happens: a data directory and a store that nothing else uses and that are gone afterwards."""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.kafka import KafkaBroker
from tests.support.postgres import PostgresCluster, create_database, drop_database

ROOT = Path(__file__).resolve().parent.parent
RESTART = "restart the broker"  # a measure writes this line, and reads one when it is done
OURS = ("AGENT_", "AGENTS_", "STATE_DB_", "TASK_QUEUE_", "KAFKA_", "GRAPH_", "ENGINE_", "DJANGO_")
# a server that keeps what it has committed, as one in use does
DURABLE = ("fsync = on", "full_page_writes = on", "synchronous_commit = on", "shared_buffers = 512MB")


@contextlib.contextmanager
def postgres_server() -> Iterator[str]:
    """The URI of the server that STATE_DB_URI names, else of a cluster that is made for these runs."""
    if given := os.environ.get("STATE_DB_URI"):
        yield given
        return
    with PostgresCluster(extra=DURABLE) as cluster:
        yield cluster.uri("postgres")


def kafka_variables(broker: KafkaBroker, partitions: int) -> dict[str, str]:
    """The settings of a broker that is made for one run; the state store stays what it is."""
    return {
        "TASK_QUEUE_BACKEND": "kafka",
        "KAFKA_BOOTSTRAP_SERVERS": broker.servers,
        "AGENT_TURNS_PARTITIONS": str(partitions),
    }


@contextlib.contextmanager
def ground(server: str | None, more: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Make an empty, migrated store (on `server`, or in SQLite files) and answer the environment of its processes."""
    with tempfile.TemporaryDirectory(prefix="fleetsite-bench-") as place:
        env = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
        env |= {
            "AGENT_DATA_DIR": place,
            "AGENT_MODULES": "benchmarks.agents",
            "DJANGO_SETTINGS_MODULE": "fleetsite.settings",
            "DJANGO_SECRET_KEY": secrets.token_urlsafe(50),
            "PYTHONPATH": str(ROOT),
            **more,
        }
        uri = None
        if server is not None:
            uri = env["STATE_DB_URI"] = create_database(server, f"bench_{secrets.token_hex(6)}")
        try:
            subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=ROOT, env=env, check=True)
            yield env
        finally:
            if uri is not None:
                drop_database(uri)


def worker_argv(*options: Any) -> list[str]:
    """The command line of a real worker."""
    return [sys.executable, "manage.py", "run_dispatch_worker", *map(str, options)]


def gunicorn_argv(port: int, processes: int) -> list[str]:
    """The command line of the web process that the README names, on loopback."""
    where = ["--bind", f"127.0.0.1:{port}", "--workers", str(processes)]
    return [sys.executable, "-m", "gunicorn", "-c", "fleetsite/gunicorn_conf.py", *where, "fleetsite.wsgi:application"]


def answers(port: int) -> bool:
    """Whether the web process on that port says that it is alive."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        client.request("GET", "/healthz")
        return client.getresponse().status == 200
    except OSError:
        return False
    finally:
        client.close()
