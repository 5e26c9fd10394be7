"""A PgBouncer in transaction mode before a test's database; it runs as a plain user, since it refuses root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

import psycopg

from tests.support.processes import free_port, until
from tests.support.system_packages import program

CONFIGURATION = """
[databases]
* = host={host} port={server_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 8
max_client_conn = 200
ignore_startup_parameters = extra_float_digits
logfile = {home}/log
"""


class NoPgBouncer(Exception):
    """No pgbouncer program is on this machine; Debian's package of that name has it."""

    def __init__(self) -> None:
        super().__init__((self.__doc__ or "").strip())


class PgBouncer:
    """`with PgBouncer(uri) as pooler: pooler.uri` is the same database through the pooler."""

    def __init__(self, server_uri: str) -> None:
        self.program = program("pgbouncer")
        if self.program is None:
            raise NoPgBouncer
        self.port = free_port()
        parts = urlsplit(server_uri)
        self.uri = parts._replace(netloc=f"{parts.username}@127.0.0.1:{self.port}").geturl()
        self._home = Path(tempfile.mkdtemp(prefix="fleetsite-pgbouncer-", dir="/tmp"))
        self._proc: subprocess.Popen[bytes] | None = None
        password = f" password={unquote(parts.password)}" if parts.password else ""
        host, server_port = str(parts.hostname), f"{parts.port or 5432} user={parts.username}{password}"
        text = CONFIGURATION.format(host=host, server_port=server_port, port=self.port, home=self._home)
        (self._home / "pgbouncer.ini").write_text(text)

    def __enter__(self) -> Self:
        who: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam("nobody")
            for path in (self._home, self._home / "pgbouncer.ini"):
                os.chown(path, user.pw_uid, user.pw_gid)
            who = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._proc = subprocess.Popen(
            [str(self.program), "-q", str(self._home / "pgbouncer.ini")],
            cwd=self._home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
            **who,
        )
        until(self._answers, 10, "PgBouncer takes connections")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._proc is not None:
            self._proc.terminate()
            try:
                self._proc.wait(5)
            except subprocess.TimeoutExpired:
                self._proc.kill()
                self._proc.wait()
        shutil.rmtree(self._home, ignore_errors=True)

    def _answers(self) -> bool:
        assert self._proc is not None
        assert self._proc.poll() is None, (self._home / "log").read_text(errors="replace")
        try:
            psycopg.connect(self.uri, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True
