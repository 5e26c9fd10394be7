"""Dispatches over REST: gunicorn with two processes, clients that each keep one connection."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from benchmarks.ground import ROOT, answers, gunicorn_argv
from fleet.access import api_key_create
from tests.support.processes import Proc, free_port, until

PROCESSES = 2
CLIENTS = 8
WARM_UP = 200


def requests(args: Namespace, database_s: Callable[[], float | None]) -> tuple[list[float], float, float | None]:
    """(latencies in s, seconds that they took in all, seconds that the store's server was busy with them)."""
    _, key = api_key_create(name="bench", tenant="bench", scopes=("dispatch",))
    port, log = free_port(), Path(os.environ["AGENT_DATA_DIR"]) / "web.log"
    with Proc("web", gunicorn_argv(port, PROCESSES), log=log, env=os.environ, cwd=ROOT) as web:
        until(lambda: answers(port), 40, "the web process answers")
        _share(port, key, WARM_UP, args.sessions)
        before = database_s()
        began = time.monotonic()
        latencies = _share(port, key, args.jobs, args.sessions)
        took = time.monotonic() - began
        after = database_s()
        assert web.alive, web.tail()
    return latencies, took, None if before is None or after is None else after - before


def _share(port: int, key: str, count: int, sessions: int) -> list[float]:
    """Let the clients send `count` dispatches between them; answers their latencies."""
    latencies: list[float] = []
    refused: list[str] = []

    def client(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        for number in range(first, count, CLIENTS):
            body = {
                "action": "dispatch",
                "task": "measure",
                "agent_name": "noop",
                "session_id": f"s-{number % sessions}",
            }
            began = time.monotonic()
            connection.request("POST", "/api/graph/jobs", json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            latencies.append(time.monotonic() - began)
            if answer.status != 202:
                refused.append(f"{answer.status} {text[:200]!r}")
                break
        connection.close()

    threads = [threading.Thread(target=client, args=(first,)) for first in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if refused:
        raise RuntimeError(f"a dispatch was refused: {refused[0]}")
    return latencies
