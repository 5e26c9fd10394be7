"""One long run in which everything fails, in a process of its own: workers, web, server, backends, the queue's file.

    python -m tests.support.chaos [--seconds S] [--turns N] [--faults N] [--seed N]      SQLite
    python -m tests.support.chaos --postgres …                                           a cluster of its own
    python -m tests.support.chaos --kafka …                                              and a broker of its own

The last line of output is the report, as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from confluent_kafka import Consumer

from tests.support.kafka import KafkaBroker
from tests.support.postgres import PostgresCluster, stop_on_sigterm
from tests.support.processes import Proc, free_port, until

if TYPE_CHECKING:
    from dispatch.demo.load import Load
    from dispatch.demo.nemesis import Fault

ROOT = Path(__file__).resolve().parents[2]
TTL_S, RENEW_S, TICK_S = 3, 1, 1
WORKERS, SESSIONS, CALLERS = 4, 40, 3
GRACE_S = 0.1
SESSION_S = 2  # of a member of the Kafka group
EVERY_S = 0.9
TERMINATE = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.7
"""


class Web:
    """gunicorn with two workers, killed with its group and started again."""

    def __init__(self, place: Path) -> None:
        self.port = free_port()
        self._log = place / "web.log"
        self._proc: Proc | None = None

    def start(self) -> None:
        bind = ("--bind", f"127.0.0.1:{self.port}", "--workers", "1", "--threads", "4")
        argv = [
            sys.executable,
            "-m",
            "gunicorn",
            "-c",
            "fleetsite/gunicorn_conf.py",
            *bind,
            "fleetsite.wsgi:application",
        ]
        self._proc = Proc("web", argv, log=self._log, env=os.environ, cwd=ROOT)

    def kill(self) -> None:
        """SIGKILL to all of it, in the middle of whatever it does, and a new one."""
        assert self._proc is not None
        self._proc.signal_group(signal.SIGKILL)
        self._proc.wait(10)
        self.start()

    def stop(self) -> None:
        if self._proc is not None:
            self._proc.end()


class Caller(threading.Thread):
    """Dispatches turns of its own session by REST, each again and again under its key until it has the handle."""

    def __init__(self, number: int, load: Load, port: int, key: str, handles: dict[str, str]) -> None:
        super().__init__(name=f"caller-{number}", daemon=True)
        self._number, self._load, self._port, self._key, self._handles = number, load, port, key, handles
        self.over = threading.Event()
        self.tries = 0

    def run(self) -> None:
        turn = 0
        while not self.over.is_set():
            turn += 1
            body = self._load.body(self._load.sessions + self._number, f"rest-{turn}")
            while (answer := self._post({"action": "dispatch", **body})) is None:
                time.sleep(0.1)
            self._handles[answer["job_id"]] = answer["session_id"]
            self.over.wait(0.5)

    def _post(self, body: Mapping[str, Any]) -> dict[str, Any] | None:
        self.tries += 1
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        with suppress(OSError, http.client.HTTPException, ValueError):
            with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=15)) as connection:
                connection.request("POST", "/api/graph/jobs", json.dumps(body).encode(), headers)
                got = connection.getresponse()
                answer = json.loads(got.read())
            if got.status in (200, 202):
                return dict(answer)
            assert got.status >= 500 or got.status == 429, (got.status, answer)
        return None


def main(options: argparse.Namespace) -> int:
    stop_on_sigterm()
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleetsite-chaos-")))
        cluster = stack.enter_context(PostgresCluster()) if options.postgres else None
        broker = stack.enter_context(KafkaBroker()) if options.kafka else None
        os.environ |= _environment(place, cluster, broker)
        report = _run(options, place, cluster, broker, stack)
    print(json.dumps(report), flush=True)
    return 0


def _environment(place: Path, cluster: PostgresCluster | None, broker: KafkaBroker | None) -> dict[str, str]:
    ours = ("AGENT_", "STATE_DB_", "DJANGO_", "TASK_QUEUE_", "KAFKA_")
    for name in [name for name in os.environ if name.startswith(ours)]:
        del os.environ[name]
    store = {"STATE_DB_URI": cluster.create_database("chaos")} if cluster else {}
    if broker:
        store |= {
            "TASK_QUEUE_BACKEND": "kafka",
            "KAFKA_BOOTSTRAP_SERVERS": broker.servers,
            "KAFKA_SESSION_TIMEOUT_S": str(SESSION_S),
            "KAFKA_PUBLISH_TIMEOUT_S": "2",
        }
    return store | {
        "DJANGO_SECRET_KEY": secrets.token_urlsafe(50),
        "DJANGO_SETTINGS_MODULE": "fleetsite.settings",
        "AGENT_DATA_DIR": str(place / "data"),
        "AGENT_MODULES": "dispatch.demo.agents",
        "AGENT_DISPATCH_CLAIM_TTL_S": str(TTL_S),
        "AGENT_DISPATCH_RENEW_INTERVAL_S": str(RENEW_S),
        "AGENT_TICK_S": str(TICK_S),
        "FLEETSITE_DEMO_JOURNAL": str(place / "journal"),
        "PYTHONUNBUFFERED": "1",
    }


def _manage(*arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "manage.py", *arguments]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)


def _prepare() -> str:
    """Tables, and a key of the demo's tenant."""
    made = _manage("migrate", "-v", "0")
    assert made.returncode == 0, made.stderr
    key = _manage("issue_api_key", "chaos", "--tenant", "demo", "--scope", "read", "--scope", "dispatch")
    assert key.returncode == 0, key.stderr
    return key.stdout.splitlines()[-1]


def _rebalance(servers: str) -> None:
    """Join the group for a moment: each member gives partitions up, and gets them back with what was not acked."""
    options = {"bootstrap.servers": servers, "group.id": "agent-dispatch", "session.timeout.ms": SESSION_S * 1000}
    quiet = {"log_level": 0, "enable.auto.commit": False, "partition.assignment.strategy": "cooperative-sticky"}
    member = Consumer({**options, **quiet})
    member.subscribe(["agent_turns"])
    end = time.monotonic() + 1.5
    while time.monotonic() < end:
        member.poll(0.1)
    member.close()


def _faults(web: Web, place: Path, cluster: PostgresCluster | None, broker: KafkaBroker | None) -> list[Fault]:
    from dispatch.demo.nemesis import Fault

    faults = [Fault(name="web killed", act=web.kill, weight=0.1)]
    if broker is not None:
        faults += [
            Fault(name="group rebalanced", act=lambda: _rebalance(broker.servers), weight=0.2),
            Fault(
                name="broker restarted",
                act=lambda: broker.restart(random.choice((signal.SIGTERM, signal.SIGKILL))),
                weight=0.06,
                outage=True,
            ),
        ]
    if cluster is None:
        # a queue file may go at any time: it is made anew and filled from the state
        queue = place / "data" / "agent_dispatch_queue.db"
        return [*faults, Fault(name="queue file deleted", act=lambda: queue.unlink(missing_ok=True), weight=0.5)]

    def terminate() -> None:
        with psycopg.connect(cluster.uri("chaos"), autocommit=True) as connection:
            connection.execute(TERMINATE)

    def restart() -> None:
        cluster.restart(random.choice((signal.SIGINT, signal.SIGQUIT)))

    return [
        *faults,
        Fault(name="backends terminated", act=terminate, weight=0.3),
        Fault(name="Postgres restarted", act=restart, weight=0.06, outage=True),
    ]


def _run(
    options: argparse.Namespace,
    place: Path,
    cluster: PostgresCluster | None,
    broker: KafkaBroker | None,
    stack: contextlib.ExitStack,
) -> dict[str, Any]:
    key = _prepare()
    import django

    django.setup()
    from dispatch.demo import agents
    from dispatch.demo.crew import Crew
    from dispatch.demo.load import Load
    from dispatch.demo.nemesis import Nemesis
    from dispatch.demo.run import Demo, in_words, live_pids

    load = Load(sessions=SESSIONS, most_s=options.most_s)
    crew = Crew(
        WORKERS,
        options=["--capacity", str(SESSIONS + CALLERS), "--agents", agents.NAME, "--grace", str(GRACE_S)],
        env={},
        logs=place,
        live_pids=live_pids,
    )
    stack.callback(crew.stop)
    web = Web(place)
    web.start()
    stack.callback(web.stop)
    nemesis = Nemesis(
        crew,
        seed=options.seed,
        every_s=EVERY_S,
        freeze_s=TTL_S + 1,
        freeze_is_outage=cluster is None,
        faults=_faults(web, place, cluster, broker),
    )
    by_rest: dict[str, str] = {}
    callers = [Caller(number, load, web.port, key, by_rest) for number in range(CALLERS)]

    def enough() -> bool:
        over = len(nemesis.blows) >= options.faults and len(load.handles) + len(by_rest) >= options.turns
        if over:
            for caller in callers:
                caller.over.set()
        done = over and not any(caller.is_alive() for caller in callers)
        if done:
            load.handles |= by_rest
        return done

    demo = Demo(
        load=load,
        crew=crew,
        journal=place / "journal",
        nemesis=nemesis,
        rounds=1,
        seconds=options.seconds,
        tell=lambda line: print(line, flush=True),
        enough=enough,
    )
    for caller in callers:
        caller.start()
    demo.run()
    report = demo.report()
    print("\n".join(in_words(report)), flush=True)
    # the ticks of what still runs have the last word before the check
    checked = _check(crew.keep)
    return {
        "problems": report.verdict.problems,
        "turns": report.verdict.turns,
        "runs": report.verdict.runs,
        "by_rest": len(by_rest),
        "faults": dict(report.faults),
        "after_kill": asdict(report.after_kill),
        "after_term": asdict(report.after_term),
        "seconds": report.seconds,
        "check": {"exit": checked.returncode, "said": checked.stdout + checked.stderr[-2000:]},
    }


def _check(keep: Callable[[], None]) -> subprocess.CompletedProcess[str]:
    """What `check_dispatch` says once every tick has had its turn."""
    checked = _manage("check_dispatch")

    def clean() -> bool:
        nonlocal checked
        keep()
        checked = _manage("check_dispatch")
        return checked.returncode == 0

    with suppress(AssertionError):
        until(clean, 4 * TICK_S, "check_dispatch finds nothing")
    return checked


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.support.chaos")
    parser.add_argument("--postgres", action="store_true", help="on a cluster of its own, which is restarted too")
    parser.add_argument("--kafka", action="store_true", help="with a Kafka broker of its own, which is restarted too")
    parser.add_argument("--turns", type=int, default=2_000, help="at least so many turns")
    parser.add_argument("--faults", type=int, default=200, help="at least so many faults")
    parser.add_argument("--seconds", type=float, default=0.0, help="at least so long")
    parser.add_argument("--most-s", type=float, default=1.0, help="a turn lasts up to so many seconds")
    parser.add_argument("--seed", type=int, default=1, help="decides the order of the faults")
    sys.exit(main(parser.parse_args()))
