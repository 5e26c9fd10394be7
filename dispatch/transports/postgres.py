"""The queue as a table of the Postgres state store: publish and ack join the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from django.db import DatabaseError, connection, transaction
from django.db.models import Count, F, Q, Sum
from django.db.models.functions import Now

from dispatch.bound import admitted
from dispatch.errors import QueueFull, QueueUnavailable
from dispatch.models import AdmissionShard, QueuedTurn
from dispatch.ports import Capabilities, Delivery, Gates, QueueRow, Serves
from dispatch.states import QueueState
from dispatch.transports import ring
from dispatch.transports.notify import CHANNEL, NotifyListener

_UPDATES = ["state", "rank", "priority", "due_at", "deadline", "agent_name", "published_at"]


def _moment(unix: float) -> datetime:
    return datetime.fromtimestamp(unix, UTC)


def _time(unix: float | None) -> datetime | None:
    return None if unix is None else _moment(unix)


class PostgresTransport:
    """`agent_dispatch_queue`, claimed with FOR UPDATE SKIP LOCKED."""

    name = "postgres"
    backend_name = "PostgresQueueBackend"
    envelopes = None
    capabilities = Capabilities(
        joins_state_transaction=True,
        exact_admission=True,
        durable=True,
        cross_host=True,
        rows_in_store=True,
        settles_in_one_statement=True,
    )

    def __init__(self, direct_uri: str) -> None:
        """`direct_uri`: where LISTEN works, past any transaction pooler."""
        self._direct_uri = direct_uri
        self._own: NotifyListener | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with transaction.atomic():
            yield

    def publish(self, rows: Sequence[QueueRow], *, bound: int | None = None) -> None:
        if not rows:
            return
        if bound is None:
            with self._readmitted():
                self._upsert(rows)
            return
        self._reserve(len(rows), bound)
        admitted(lambda: self._upsert_alone(rows), make_room=lambda: self.make_room(len(rows), bound))

    @contextmanager
    def _readmitted(self) -> Iterator[None]:
        """Rows without a bound stand for what was admitted before: the bound does not refuse them."""
        set_local = "SELECT set_config('fleetsite.readmit', %s, true)"
        with connection.cursor() as cursor:
            cursor.execute(set_local, ["on"])
            yield
            cursor.execute(set_local, ["off"])

    def _upsert_alone(self, rows: Sequence[QueueRow]) -> None:
        """In a savepoint where there is a transaction: a refusal leaves the caller's as it was."""
        with transaction.atomic():
            self._upsert(rows)

    @staticmethod
    def _upsert(rows: Sequence[QueueRow]) -> None:
        QueuedTurn.objects.bulk_create(
            [
                QueuedTurn(
                    work_item_id=row.item_id,
                    job_id=row.job_id,
                    tenant=row.tenant,
                    kind=row.kind,
                    agent_name=row.agent_name,
                    state=row.state,
                    rank=_moment(row.rank),
                    priority=row.priority,
                    due_at=_time(row.due_at),
                    deadline=_time(row.deadline),
                    enqueued_at=_moment(row.enqueued_at),
                    published_at=_time(row.published_at),
                )
                for row in rows
            ],
            update_conflicts=True,
            unique_fields=["work_item_id"],
            update_fields=_UPDATES,
        )

    def promote(self, moves: Sequence[tuple[int, int, float | None, float | None]]) -> None:
        for item_id, state, due_at, rank in moves:
            QueuedTurn.objects.filter(pk=item_id).update(
                state=state, due_at=_time(due_at), published_at=None, **({} if rank is None else {"rank": _time(rank)})
            )

    def receive(self, *, want: int, serves: Serves, gates: Gates, cursor: str, now: float) -> list[Delivery]:
        with transaction.atomic():
            picked = ring.pick(_Index(_time(now)), want=want, serves=serves, gates=gates, cursor=cursor)
            QueuedTurn.objects.filter(pk__in=[i for i, _ in picked]).update(
                state=QueueState.CLAIMED, claimed_at=_time(now), published_at=None
            )
        return [Delivery(item_id=item_id, tenant=tenant) for item_id, tenant in picked]

    def ack(self, item_ids: Sequence[int]) -> None:
        QueuedTurn.objects.filter(pk__in=list(item_ids)).delete()

    def release(self, item_ids: Sequence[int], *, delay_s: float = 0.0) -> None:
        due = datetime.now(UTC) + timedelta(seconds=delay_s) if delay_s > 0 else None
        QueuedTurn.objects.filter(pk__in=list(item_ids), state=QueueState.CLAIMED).update(
            state=QueueState.DUE_LATER if due else QueueState.CLAIMABLE, due_at=due, claimed_at=None
        )

    def take(self, item_ids: Sequence[int]) -> list[int]:
        free = (
            QueuedTurn.objects.select_for_update(skip_locked=True)
            .filter(pk__in=list(item_ids), state=QueueState.CLAIMABLE)
            .order_by("pk")
        )
        with transaction.atomic():
            taken = list(free.values_list("pk", flat=True))
            QueuedTurn.objects.filter(pk__in=taken).update(
                state=QueueState.CLAIMED, claimed_at=Now(), published_at=None
            )
        return taken

    def published(self, item_ids: Sequence[int], *, at: float) -> None:
        """Forgotten in a crash of the server, an envelope is sent once more: this commit need not reach the disk."""
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL synchronous_commit = off")
            QueuedTurn.objects.filter(pk__in=list(item_ids), state=QueueState.CLAIMABLE).update(published_at=_time(at))

    def unpublished(self, *, before: float, limit: int) -> list[QueueRow]:
        late = Q(published_at__isnull=True) | Q(published_at__lt=_time(before))
        return [_row(row) for row in QueuedTurn.objects.filter(late, state=QueueState.CLAIMABLE)[:limit]]

    def extend(self, item_ids: Sequence[int]) -> None:
        """Nothing to do: a claimed row stays hidden until the authority says otherwise."""

    def rows(self, item_ids: Sequence[int]) -> dict[int, QueueRow]:
        """Locks them, by id: queue rows come before items in the order that everybody keeps."""
        found = QueuedTurn.objects.filter(pk__in=list(item_ids)).order_by("pk")
        if connection.in_atomic_block:
            found = found.select_for_update()
        return {row.work_item_id: _row(row) for row in found}

    def due(self, *, now: float, limit: int) -> list[int]:
        due = QueuedTurn.objects.filter(state=QueueState.DUE_LATER, due_at__lte=_time(now)).order_by("due_at")
        return list(due.values_list("pk", flat=True)[:limit])

    def expired(self, *, now: float, limit: int) -> list[int]:
        late = QueuedTurn.objects.filter(deadline__lte=_time(now)).exclude(state=QueueState.CLAIMED)
        return list(late.order_by("deadline").values_list("pk", flat=True)[:limit])

    def page(self, *, after: int, limit: int) -> list[QueueRow]:
        return [_row(row) for row in QueuedTurn.objects.filter(pk__gt=after).order_by("pk")[:limit]]

    def depth(self) -> int:
        try:
            return AdmissionShard.objects.aggregate(depth=Sum("used", default=0))["depth"]  # type: ignore[no-any-return]
        except DatabaseError as error:
            raise QueueUnavailable(f"the admission shards cannot be read ({type(error).__name__})") from error

    def room(self, bound: int) -> int:
        """Read, not held: the shards' CHECK holds the bound, and make_room moves what is free to where it is needed."""
        return max(0, bound - self.depth())

    def make_room(self, count: int, bound: int) -> None:
        """Make the quotas add up to the bound again, with room for `count` rows here; raise QueueFull when it is full.

        Nothing is locked while they do. Else all shards are, in order, in a transaction that does nothing else: locked
        before sessions they would deadlock with settlements, which take their shard last.
        """
        known = AdmissionShard.objects.aggregate(
            count=Count("pk"),
            used=Sum("used", default=0),
            quota=Sum("quota", default=0),
            raised=Count("pk", filter=Q(raised=True)),
        )
        if (known["count"], known["quota"], known["raised"]) == (AdmissionShard.SHARDS, bound, 0):
            if known["used"] >= bound:
                raise QueueFull
            return  # an admission takes by itself what is free in other shards
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_backend_pid()")
                mine = cursor.fetchone()[0] % AdmissionShard.SHARDS
            if known["count"] < AdmissionShard.SHARDS:
                AdmissionShard.objects.bulk_create(
                    [AdmissionShard(pk=pk) for pk in range(AdmissionShard.SHARDS)], ignore_conflicts=True
                )
            shards = list(AdmissionShard.objects.select_for_update().order_by("pk"))
            free = bound - sum(shard.used for shard in shards)
            own = min(count, max(0, free))
            even, rest = divmod(max(0, free) - own, len(shards))
            for shard in shards:
                shard.quota = shard.used + even + (own + rest if shard.pk == mine else 0)
                shard.raised = free < 0
            AdmissionShard.objects.bulk_update(shards, ["quota", "raised"])
        if free <= 0:
            raise QueueFull

    def _reserve(self, count: int, bound: int) -> None:
        """Refuse at once what does not fit; what two admit at the same time is refused by the shards' CHECK."""
        if count > self.room(bound):
            raise QueueFull

    @property
    def rebuilding(self) -> bool:
        return False

    def rebuilt(self) -> None:
        """Nothing to do: the table lives and dies with the state."""

    def wait(self, timeout_s: float) -> bool:
        if self._own is None:
            self._own = self.listener()
            self._own.wait(0)  # from here on it listens
        return self._own.wait(timeout_s)

    def wake(self) -> None:
        """Inside a transaction the notice goes out with its commit."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify(%s, '')", [CHANNEL])

    def listener(self) -> NotifyListener:
        return NotifyListener(self._direct_uri)

    def close(self) -> None:
        if self._own is not None:
            self._own.close()
            self._own = None


def _unix(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None


def _row(row: QueuedTurn) -> QueueRow:
    return QueueRow(
        item_id=row.work_item_id,
        job_id=row.job_id,
        tenant=row.tenant,
        kind=row.kind,
        agent_name=row.agent_name,
        state=row.state,
        rank=row.rank.timestamp(),
        priority=row.priority,
        due_at=_unix(row.due_at),
        deadline=_unix(row.deadline),
        enqueued_at=row.enqueued_at.timestamp(),
        published_at=_unix(row.published_at),
    )


class _Index:
    """The claim index of the table; `best` locks what it answers and skips what others hold."""

    def __init__(self, now: datetime | None) -> None:
        self._now = now

    @staticmethod
    def _lane(lane: ring.Lane) -> Q:
        return Q(state=QueueState.CLAIMABLE, agent_name=lane[0], kind=lane[1])

    def has_rows(self, lane: ring.Lane) -> bool:
        # in the index's order: without one the planner may scan the table until it meets a row
        rows = QueuedTurn.objects.filter(self._lane(lane)).order_by("tenant")
        return rows.values_list("pk", flat=True).first() is not None

    def next_tenant(self, lane: ring.Lane, after: str) -> str | None:
        rows = QueuedTurn.objects.filter(self._lane(lane), tenant__gt=after).order_by("tenant")
        return rows.values_list("tenant", flat=True).first()

    def best(self, lane: ring.Lane, tenant: str, limit: int) -> list[ring.Candidate]:
        rows = (
            QueuedTurn.objects.select_for_update(skip_locked=True)
            .filter(self._lane(lane), Q(deadline__isnull=True) | Q(deadline__gt=self._now), tenant=tenant)
            .order_by(F("rank"), F("work_item_id"))
        )
        return [(row.rank.timestamp(), row.work_item_id) for row in rows[:limit]]
