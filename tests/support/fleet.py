"""One installation in a directory of its own, driven from outside: commands, signals, REST.

    with Fleet(place, template) as fleet:
        worker = fleet.worker(2)
        job = fleet.api("t1").dispatch("wait", s=3)

Workers and web processes are real; they are stopped by their ids. The state is a SQLite file in the directory or, when
STATE_DB_URI is set, a database of its own on that server.
"""

from __future__ import annotations

import http.client
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import urlsplit

import psycopg

from tests.support.api import Api
from tests.support.journal import VARIABLE, Journal, Run
from tests.support.postgres import create_database, drop_database
from tests.support.processes import NotInTime, Proc, free_port, until

ROOT = Path(__file__).resolve().parents[2]
TTL_S, RENEW_S, TICK_S, BEAT_S, STALE_S = 6, 2, 1, 2, 6
PLATFORM, STAFF, PASSWORD = "ops", "root", "a long enough password"
_PREPARE = f"""
import django; django.setup()
from django.core.management import call_command
from django.contrib.auth import get_user_model
call_command("migrate", verbosity=0)
get_user_model().objects.create_superuser({STAFF!r}, password={PASSWORD!r})
scopes = [part for scope in ("read", "dispatch", "operate") for part in ("--scope", scope)]
for tenant in ("t1", "t2", {PLATFORM!r}):
    more = ["--platform"] if tenant == {PLATFORM!r} else []
    call_command("issue_api_key", tenant, "--tenant", tenant, *scopes, *more)
    print("key of", tenant)
"""


def new_session() -> str:
    return f"s-{uuid.uuid4().hex[:12]}"


def variables(data: Path, **more: object) -> dict[str, str]:
    """What the product's processes get to see: nothing of the tests' own environment but PATH."""
    own: dict[str, object] = {
        "PATH": str(Path(sys.executable).parent) + ":/usr/local/bin:/usr/bin:/bin",
        "HOME": str(data.parent),
        "LANG": "C.UTF-8",
        "TMPDIR": tempfile.gettempdir(),
        "PYTHONUNBUFFERED": "1",
        "DJANGO_SETTINGS_MODULE": "fleetsite.settings",
        "AGENT_DATA_DIR": data,
        "AGENT_MODULES": "tests.support.journal_agents",
        "AGENT_DISPATCH_CLAIM_TTL_S": TTL_S,
        "AGENT_DISPATCH_RENEW_INTERVAL_S": RENEW_S,
        "AGENT_TICK_S": TICK_S,
        "AGENT_WORKER_HEARTBEAT_S": BEAT_S,
        "AGENT_WORKER_STALE_S": STALE_S,
        VARIABLE: data.parent / "journal.jsonl",
    }
    if more.get("STATE_DB_URI"):
        own["DJANGO_SECRET_KEY"] = os.environ.get("DJANGO_SECRET_KEY")
    return {name: str(value) for name, value in (own | more).items() if value is not None}


@dataclass(frozen=True)
class Template:
    """A migrated installation with keys and one member of staff: copied for each fleet, made once."""

    data: Path
    keys: Mapping[str, str]
    state_uri: str | None  # of its database; None for a SQLite file in `data`

    @classmethod
    def make(cls, place: Path) -> Self:
        data = place / "data"
        server = os.environ.get("STATE_DB_URI")
        state_uri = create_database(server, f"template_{uuid.uuid4().hex[:12]}") if server else None
        env = variables(data, STATE_DB_URI=state_uri)
        data.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", _PREPARE], cwd=ROOT, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said = done.stdout.splitlines()
        keys = {text.removeprefix("key of "): said[n - 1] for n, text in enumerate(said) if text.startswith("key of ")}
        return cls(data, keys, state_uri)

    def copy_state(self) -> str | None:
        """A database of the same content; answers its URI, None when the state is a file in `data`."""
        if self.state_uri is None:
            return None
        name = urlsplit(self.state_uri).path.removeprefix("/")
        return create_database(self.state_uri, f"fleet_{uuid.uuid4().hex[:12]}", like=name)

    def remove(self) -> None:
        """Drop its database; the directory is the caller's."""
        if self.state_uri is not None:
            drop_database(self.state_uri)


class Fleet:
    """The installation: its web process, its workers, its files. `with` stops all of it."""

    standing: ClassVar[list[Fleet]] = []  # those that run now; a test that fails shows what they said

    def __init__(self, place: Path, template: Template, *, web: int = 1, **env: object) -> None:
        self.place, self.data = place, place / "data"
        self.logs = place / "logs"
        self.logs.mkdir(parents=True)
        shutil.copytree(template.data, self.data, ignore=shutil.ignore_patterns("wake", "metrics"))
        self.state_uri = template.copy_state()
        self.journal = Journal(place / "journal.jsonl")
        self.port = free_port()
        self.env = env
        self.procs: list[Proc] = []
        self._keys, self._web_processes, self._count = template.keys, web, 0
        self.web: Proc | None = None

    def __enter__(self) -> Self:
        self.standing.append(self)
        if self._web_processes:
            self.start_web()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.standing.remove(self)
        try:
            self.stop(self.procs)
        finally:
            if self.state_uri is not None:
                drop_database(self.state_uri)

    # -- processes -----------------------------------------------------------------------------------------------------
    def variables(self, **more: object) -> dict[str, str]:
        return variables(self.data, **{"STATE_DB_URI": self.state_uri, **self.env, **more})

    def spawn(self, name: str, *argv: object, env: Mapping[str, object] | None = None) -> Proc:
        self._count += 1
        log = self.logs / f"{self._count:03d}-{name}.log"
        parts = [sys.executable, *map(str, argv)]
        proc = Proc(name, parts, log=log, env=self.variables(**(env or {})), cwd=ROOT)
        self.procs.append(proc)
        return proc

    def start_web(self) -> Proc:
        """Start gunicorn; answers when it does."""
        at = ("--bind", f"127.0.0.1:{self.port}", "--workers", self._web_processes)
        conf = ("-c", "fleetsite/gunicorn_conf.py")
        self.web = web = self.spawn("web", "-m", "gunicorn", *conf, *at, "fleetsite.wsgi:application")

        def up() -> bool:
            assert web.alive, web.tail()
            with suppress(OSError, http.client.HTTPException):
                return self.anyone().request("GET", "/healthz", timeout=2).status == 200
            return False

        until(up, 40, "the web process answers")
        return web

    def kill_web(self) -> None:
        """SIGKILL to gunicorn and its processes."""
        assert self.web is not None
        self.web.signal_group(signal.SIGKILL)
        self.web.wait(10)

    def launch(self, consumers: int = 1, *options: object, env: Mapping[str, object] | None = None) -> Proc:
        """Start a worker process and do not wait for it."""
        return self.spawn("worker", "manage.py", "run_dispatch_worker", "--workers", consumers, *options, env=env)

    def worker(self, consumers: int = 1, *options: object, env: Mapping[str, object] | None = None) -> Proc:
        """Start a worker process; answers when the registry shows it."""
        proc = self.launch(consumers, *options, env=env)
        self.until_live(proc)
        return proc

    def until_live(self, *procs: Proc, within: float = 30) -> None:
        def live() -> bool:
            for proc in procs:
                assert proc.alive, proc.tail()
            return {proc.pid for proc in procs} <= self.live_pids()

        until(live, within, "the registry shows the workers", every=0.1)

    def live_pids(self) -> set[int]:
        return {int(row["worker_id"].split(":")[1]) for row in self.topology()["dispatch_workers"]}

    def topology(self) -> Any:
        answer = self.platform().request("GET", "/api/fleet/topology")
        assert answer.status in (200, 503), answer.text
        return answer.json()

    def freeze(self, proc: Proc) -> None:
        """SIGSTOP, at a moment when the process is in no transaction: there it would hold its locks for ever."""

        def between_transactions() -> bool:
            proc.signal_group(signal.SIGSTOP)
            if self._nobody_in_transaction():
                return True
            proc.signal_group(signal.SIGCONT)
            return False

        until(between_transactions, 20, f"{proc.name} is frozen between its transactions")

    def _nobody_in_transaction(self) -> bool:
        if self.state_uri is None:
            return all(_writable(path) for path in (self.state_file, self.queue_file))
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND xact_start IS NOT NULL AND pid <> pg_backend_pid()"
        )
        with suppress(NotInTime):
            return until(lambda: bool(self.state_sql(query)[0][0] == 0), 0.5, "no transaction is open")
        return False

    def thaw(self, proc: Proc) -> None:
        proc.signal_group(signal.SIGCONT)

    def hurry(self, proc: Proc) -> None:
        """Make a worker hand back at once. Two signals: two of the same number might arrive as one."""
        proc.signal(signal.SIGTERM)
        proc.signal(signal.SIGINT)

    def stop(self, procs: Iterable[Proc]) -> None:
        """End these and forget them; a failure when one needs more than its signals."""
        ending = list(procs)
        for proc in ending:
            proc.signal_group(signal.SIGCONT)
            if proc is self.web:
                proc.signal(signal.SIGTERM)
            else:
                self.hurry(proc)
        self.procs = [proc for proc in self.procs if proc not in ending]
        late = []
        for proc in ending:
            with suppress(subprocess.TimeoutExpired):
                proc.popen.wait(10)
            late += [proc.tail()] if proc.alive else []
            proc.end()
        assert not late, "did not end when told:\n" + "\n".join(late)

    def python(self, code: str, *, env: Mapping[str, object] | None = None) -> str:
        """Run code in a process of the product; answers what it printed."""
        done = subprocess.run(
            [sys.executable, "-c", f"import django; django.setup()\n{code}"],
            cwd=ROOT,
            env=self.variables(**(env or {})),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # -- callers and files ---------------------------------------------------------------------------------------------
    def api(self, tenant: str = "t1") -> Api:
        return Api(self.port, self._keys[tenant])

    def platform(self) -> Api:
        return self.api(PLATFORM)

    def anyone(self) -> Api:
        return Api(self.port, "")

    @property
    def state_file(self) -> Path:
        return self.data / "agent_terminal_ui.db"

    @property
    def queue_file(self) -> Path:
        return self.data / "agent_dispatch_queue.db"

    @property
    def queue_backend(self) -> str:
        """As metrics call it."""
        return "sqlite" if self.state_uri is None else "postgres"

    def state_sql(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement on the state store; `?` stands for a value."""
        if self.state_uri is not None:
            return _postgres_sql(self.state_uri, text, values)
        return _sql(self.state_file, text, values)

    def queue_sql(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """The same on the queue, which on Postgres is a table of the state store."""
        if self.state_uri is not None:
            return _postgres_sql(self.state_uri, text, values)
        return _sql(self.queue_file, text, values)

    # -- looking -------------------------------------------------------------------------------------------------------
    def until_begun(self, job_id: str, *, runs: int = 1, within: float = 20) -> Run:
        """The job's run of that number, as soon as it has begun."""

        def look() -> Run | None:
            seen = self.journal.runs(job_id)
            return seen[runs - 1] if len(seen) >= runs else None

        try:
            found = until(look, within, f"run {runs} of {job_id} begins")
        except NotInTime as late:
            raise NotInTime(f"{late}; {self.platform().call('explain', job_id=job_id).text}\n{self.tails()}") from None
        assert found is not None
        return found

    def epochs(self, job_id: str) -> list[int]:
        """The epoch of each claim of the job, in order."""
        query = (
            "SELECT e.epoch FROM work_item_events e JOIN work_items i ON i.id = e.work_item_id "
            "WHERE i.job_id = ? AND e.to_status = 'running' AND e.from_status = 'ready' ORDER BY e.id"
        )
        return [epoch for (epoch,) in self.state_sql(query, job_id)]

    def sweep(self) -> None:
        """Cancel what is unfinished, so that no later test's worker runs it, and forget the workers that are gone.

        What a killed worker held would be shown as running until its lease is over: it is over at once.
        """
        api = self.platform()
        for status in ("pending", "suspended", "running"):
            for job in api.jobs(status):
                api.call("cancel", job_id=job["job_id"], reason="the test is over")
        if any(proc is not self.web for proc in self.procs):
            return
        self.state_sql("DELETE FROM dispatch_workers")
        if api.jobs("running"):
            self.state_sql("UPDATE work_items SET lease_expires_at = '2020-01-01' WHERE status = 'running'")
            self.python("from dispatch import wiring; wiring.authority().transitions.rescue()")
            assert api.jobs("running") == []

    def tails(self) -> str:
        return "\n".join(proc.tail(15) for proc in self.procs[-4:])


def _writable(path: Path) -> bool:
    with closing(sqlite3.connect(path, timeout=0.5, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


def _sql(path: Path, text: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
    assert path.exists(), path
    with closing(sqlite3.connect(path, timeout=30)) as connection, connection:
        return connection.execute(text, values).fetchall()


def _postgres_sql(uri: str, text: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
    with psycopg.connect(uri, autocommit=True) as connection:
        cursor = connection.execute(text.replace("?", "%s").encode(), values)
        return cursor.fetchall() if cursor.description else []
