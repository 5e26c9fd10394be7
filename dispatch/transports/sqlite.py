"""The queue in a SQLite file of its own: several processes on one host.

The file is a projection of the state store and may be lost: every connect makes its directory and schema anew, a fresh
file says that it is rebuilding until it is filled from the state, and a file that was removed or replaced under a
connection is noticed by its inode before each use.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from pathlib import Path

from dispatch.errors import QueueFull, QueueUnavailable
from dispatch.ports import Capabilities, Delivery, Gates, QueueRow, Serves
from dispatch.states import QueueState
from dispatch.transports import ring
from dispatch.transports.wakeup import WakeUp

BUSY_TIMEOUT_S = 30.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS agent_dispatch_queue (
  work_item_id INTEGER PRIMARY KEY, job_id TEXT NOT NULL, tenant TEXT NOT NULL, kind TEXT NOT NULL,
  agent_name TEXT NOT NULL, state INTEGER NOT NULL, rank REAL NOT NULL, priority INTEGER NOT NULL,
  due_at REAL, deadline REAL, enqueued_at REAL NOT NULL, published_at REAL) STRICT;
-- the claim: lane (agent, kind) first, then tenant; what a consumer does not serve is never met
CREATE INDEX IF NOT EXISTS queue_claim ON agent_dispatch_queue (agent_name, kind, tenant, rank, work_item_id)
  WHERE state = 1;
-- the due tick
CREATE INDEX IF NOT EXISTS queue_due ON agent_dispatch_queue (due_at) WHERE state = 2;
-- expiry of what has not started
CREATE INDEX IF NOT EXISTS queue_deadline ON agent_dispatch_queue (deadline) WHERE deadline IS NOT NULL;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;
-- depth is a row that the triggers keep: suspended turns (6) are not counted
CREATE TRIGGER IF NOT EXISTS depth_insert AFTER INSERT ON agent_dispatch_queue WHEN new.state <> 6
  BEGIN UPDATE meta SET value = value + 1 WHERE name = 'depth'; END;
CREATE TRIGGER IF NOT EXISTS depth_delete AFTER DELETE ON agent_dispatch_queue WHEN old.state <> 6
  BEGIN UPDATE meta SET value = value - 1 WHERE name = 'depth'; END;
CREATE TRIGGER IF NOT EXISTS depth_suspend AFTER UPDATE OF state ON agent_dispatch_queue
  WHEN (old.state = 6) <> (new.state = 6)
  BEGIN UPDATE meta SET value = value + (CASE WHEN old.state = 6 THEN 1 ELSE -1 END) WHERE name = 'depth'; END;
INSERT OR IGNORE INTO meta (name, value) VALUES ('depth', 0), ('rebuilding', 1);
"""
_NAMES = (
    *("work_item_id", "job_id", "tenant", "kind", "agent_name", "state", "rank", "priority", "due_at", "deadline"),
    *("enqueued_at", "published_at"),
)
_COLUMNS = ", ".join(_NAMES)
UPSERT = f"""
INSERT INTO agent_dispatch_queue ({_COLUMNS}) VALUES ({", ".join("?" * len(_NAMES))})
ON CONFLICT (work_item_id) DO UPDATE SET state = excluded.state, rank = excluded.rank, priority = excluded.priority,
  due_at = excluded.due_at, deadline = excluded.deadline, agent_name = excluded.agent_name,
  published_at = excluded.published_at
"""
SELECT = f"SELECT {_COLUMNS} FROM agent_dispatch_queue"
PROMOTE = """
UPDATE agent_dispatch_queue SET state = ?, due_at = ?, rank = coalesce(?, rank), published_at = NULL
 WHERE work_item_id = ?
"""
TAKE = "UPDATE agent_dispatch_queue SET state = 3, published_at = NULL WHERE work_item_id = ?"


# The file is of no use as it is; a new one is made from the state.
_BROKEN = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class _Local(threading.local):
    connection: sqlite3.Connection | None = None
    files: tuple[int, ...] = ()
    broken: bool = False
    pid: int = 0
    depth: int = 0


def _is_broken(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BROKEN


class SQLiteTransport:
    """One file, WAL, IMMEDIATE transactions. The state commits FULL before it, so the queue may be NORMAL."""

    name = "sqlite"
    backend_name = "SQLiteQueueBackend"
    envelopes = None
    capabilities = Capabilities(joins_state_transaction=False, exact_admission=True, durable=True, cross_host=False)

    def __init__(self, path: Path) -> None:
        self.path = path
        self._local = _Local()
        # socket paths are bounded at about 100 bytes: the directory's name is short
        self._wake_directory = path.parent / "wake"
        self._wakeup = WakeUp(self._wake_directory)

    # -- connection ----------------------------------------------------------------------------------------------------
    def _files(self) -> tuple[int, ...]:
        """The inodes of the file and of its log's index, which is there while somebody has the file open."""
        try:
            return tuple(os.stat(f"{self.path}{part}").st_ino for part in ("", "-shm"))
        except OSError:
            return ()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One process at a time opens the file, and looks whether to make it anew."""
        with open(f"{self.path}.lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _discard(self) -> None:
        """Leave file and log to those who still have them open: a new file beside an old log is none."""
        for part in ("-shm", "-wal", ""):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self.path}{part}")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.executescript(f"BEGIN IMMEDIATE; {SCHEMA} COMMIT;")
            _add_what_an_older_file_lacks(connection)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _open(self, lost: tuple[int, ...] = ()) -> sqlite3.Connection:
        """Open the file, a new one where there is none, or where it is still the one of which we lost the log."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._alone():
                if not self.path.exists() or os.stat(self.path).st_ino in lost[:1]:
                    self._discard()
                try:
                    connection = self._connect()
                except sqlite3.Error as error:
                    if not _is_broken(error):
                        raise
                    self._discard()
                    connection = self._connect()
                files = self._files()
        except (OSError, sqlite3.Error) as error:
            raise QueueUnavailable(f"the queue file cannot be opened ({type(error).__name__})") from error
        local = self._local
        local.connection, local.files, local.broken, local.pid = connection, files, False, os.getpid()
        return connection

    def _connection(self) -> sqlite3.Connection:
        local = self._local
        if local.connection is None:
            return self._open()
        if local.depth:
            return local.connection
        ours = local.pid == os.getpid()
        if ours and not local.broken and local.files and self._files() == local.files:
            return local.connection
        if not ours:
            return self._open()  # a fork leaves the connection to its parent
        old = local.connection  # closed only then, so that no new file gets its inode
        connection = self._open(local.files)
        with contextlib.suppress(sqlite3.Error):
            old.close()
        return connection

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            self._local.broken |= _is_broken(error)
            raise QueueUnavailable(f"the queue file cannot be used ({type(error).__name__})") from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        connection = self._connection()
        local = self._local
        if local.depth:
            local.depth += 1
            try:
                yield
            finally:
                local.depth -= 1
            return
        with self._errors():
            connection.execute("BEGIN IMMEDIATE")
        local.depth = 1
        try:
            yield
        except BaseException:
            local.depth = 0
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise
        local.depth = 0
        with self._errors():
            try:
                connection.execute("COMMIT")
            except sqlite3.Error:
                if connection.in_transaction:  # it may stay open, and nobody could begin another
                    connection.execute("ROLLBACK")
                raise

    # -- rows ----------------------------------------------------------------------------------------------------------
    def publish(self, rows: Sequence[QueueRow], *, bound: int | None = None) -> None:
        with self.transaction(), self._errors():
            if bound is not None and len(rows) > self.room(bound):
                raise QueueFull
            self._connection().executemany(UPSERT, [_values(row) for row in rows])

    def promote(self, moves: Sequence[tuple[int, int, float | None, float | None]]) -> None:
        with self._errors():
            self._connection().executemany(
                PROMOTE, [(state, due_at, rank, item_id) for item_id, state, due_at, rank in moves]
            )

    def receive(self, *, want: int, serves: Serves, gates: Gates, cursor: str, now: float) -> list[Delivery]:
        with self.transaction(), self._errors():
            connection = self._connection()
            picked = ring.pick(_Index(connection, now), want=want, serves=serves, gates=gates, cursor=cursor)
            connection.executemany(TAKE, [(i,) for i, _ in picked])
        return [Delivery(item_id=item_id, tenant=tenant) for item_id, tenant in picked]

    def ack(self, item_ids: Sequence[int]) -> None:
        with self._errors():
            self._connection().executemany(
                "DELETE FROM agent_dispatch_queue WHERE work_item_id = ?", [(i,) for i in item_ids]
            )

    def release(self, item_ids: Sequence[int], *, delay_s: float = 0.0) -> None:
        due = time.time() + delay_s if delay_s > 0 else None
        state = QueueState.DUE_LATER if due else QueueState.CLAIMABLE
        with self._errors():
            self._connection().executemany(
                "UPDATE agent_dispatch_queue SET state = ?, due_at = ? WHERE work_item_id = ? AND state = 3",
                [(state, due, i) for i in item_ids],
            )

    def take(self, item_ids: Sequence[int]) -> list[int]:
        with self._errors():
            query = f"{TAKE} AND state = 1 RETURNING work_item_id"
            connection = self._connection()
            taken = [connection.execute(query, (i,)).fetchone() for i in item_ids]
        return [item_id for (item_id,) in filter(None, taken)]

    def published(self, item_ids: Sequence[int], *, at: float) -> None:
        with self.transaction(), self._errors():
            self._connection().executemany(
                "UPDATE agent_dispatch_queue SET published_at = ? WHERE work_item_id = ? AND state = 1",
                [(at, i) for i in item_ids],
            )

    def unpublished(self, *, before: float, limit: int) -> list[QueueRow]:
        query = f"{SELECT} WHERE state = 1 AND (published_at IS NULL OR published_at < ?) LIMIT ?"
        with self._errors():
            return [_row(row) for row in self._connection().execute(query, (before, limit))]

    def extend(self, item_ids: Sequence[int]) -> None:
        """Nothing to do: a claimed row stays hidden until the authority says otherwise."""

    def rows(self, item_ids: Sequence[int]) -> dict[int, QueueRow]:
        with self._errors():
            connection = self._connection()
            found = [connection.execute(f"{SELECT} WHERE work_item_id = ?", (i,)).fetchone() for i in item_ids]
        return {row.item_id: row for row in map(_row, filter(None, found))}

    def due(self, *, now: float, limit: int) -> list[int]:
        return self._ids("state = 2 AND due_at <= ? ORDER BY due_at LIMIT ?", (now, limit))

    def expired(self, *, now: float, limit: int) -> list[int]:
        return self._ids(
            "deadline IS NOT NULL AND deadline <= ? AND state <> 3 ORDER BY deadline LIMIT ?", (now, limit)
        )

    def page(self, *, after: int, limit: int) -> list[QueueRow]:
        with self._errors():
            return [
                _row(row)
                for row in self._connection().execute(
                    f"{SELECT} WHERE work_item_id > ? ORDER BY work_item_id LIMIT ?", (after, limit)
                )
            ]

    def _ids(self, where: str, params: tuple[float, int]) -> list[int]:
        with self._errors():
            query = f"SELECT work_item_id FROM agent_dispatch_queue WHERE {where}"
            return [item_id for (item_id,) in self._connection().execute(query, params)]

    # -- depth ---------------------------------------------------------------------------------------------------------
    def _meta(self) -> dict[str, int]:
        with self._errors():
            return dict(self._connection().execute("SELECT name, value FROM meta"))

    def depth(self) -> int:
        meta = self._meta()
        if meta["rebuilding"]:
            raise QueueUnavailable("the queue file is being rebuilt from the state store")
        return meta["depth"]

    def room(self, bound: int) -> int:
        return max(0, bound - self._meta()["depth"])

    def make_room(self, count: int, bound: int) -> None:
        if self.room(bound) < 1:
            raise QueueFull

    @property
    def rebuilding(self) -> bool:
        return bool(self._meta()["rebuilding"])

    def rebuilt(self) -> None:
        with self.transaction(), self._errors():
            connection = self._connection()
            connection.execute(
                "UPDATE meta SET value = (SELECT count(*) FROM agent_dispatch_queue WHERE state <> 6) "
                "WHERE name = 'depth'"
            )
            connection.execute("UPDATE meta SET value = 0 WHERE name = 'rebuilding'")

    # -- waking --------------------------------------------------------------------------------------------------------
    def wait(self, timeout_s: float) -> bool:
        return self._wakeup.wait(timeout_s)

    def wake(self) -> None:
        self._wakeup.wake()

    def listener(self) -> WakeUp:
        """A listener of its own for one waiting loop; its owner closes it."""
        return self._wakeup.another()

    def close(self) -> None:
        self._wakeup.close()
        local = self._local
        if local.connection is not None and local.pid == os.getpid():
            local.connection.close()
        local.connection = None


def _add_what_an_older_file_lacks(connection: sqlite3.Connection) -> None:
    columns = {row[1] for row in connection.execute("PRAGMA table_info(agent_dispatch_queue)")}
    if "published_at" not in columns:
        connection.execute("ALTER TABLE agent_dispatch_queue ADD COLUMN published_at REAL")


_values = attrgetter("item_id", *_NAMES[1:])


def _row(values: tuple[object, ...]) -> QueueRow:
    return QueueRow(**dict(zip(("item_id", *_NAMES[1:]), values, strict=True)))  # type: ignore[arg-type]


class _Index:
    """The claim index of the file: each probe is one step in `queue_claim`."""

    def __init__(self, connection: sqlite3.Connection, now: float) -> None:
        self._connection = connection
        self._now = now

    def has_rows(self, lane: ring.Lane) -> bool:
        query = "SELECT 1 FROM agent_dispatch_queue WHERE state = 1 AND agent_name = ? AND kind = ? LIMIT 1"
        return self._connection.execute(query, lane).fetchone() is not None

    def next_tenant(self, lane: ring.Lane, after: str) -> str | None:
        query = (
            "SELECT tenant FROM agent_dispatch_queue "
            "WHERE state = 1 AND agent_name = ? AND kind = ? AND tenant > ? ORDER BY tenant LIMIT 1"
        )
        row = self._connection.execute(query, (*lane, after)).fetchone()
        return row[0] if row else None

    def best(self, lane: ring.Lane, tenant: str, limit: int) -> list[ring.Candidate]:
        query = (
            "SELECT rank, work_item_id FROM agent_dispatch_queue "
            "WHERE state = 1 AND agent_name = ? AND kind = ? AND tenant = ? AND (deadline IS NULL OR deadline > ?) "
            "ORDER BY rank, work_item_id LIMIT ?"
        )
        return self._connection.execute(query, (*lane, tenant, self._now, limit)).fetchall()
