"""The registry of workers in the state store: what topology and explain read."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

from django.db import transaction

from dispatch.clock import store_now
from dispatch.models import DispatchWorker, KnownAgent, KnownCheck
from dispatch.ports import Lease
from dispatch.worker_ports import ANNOUNCE_S, Beat

M = TypeVar("M", KnownAgent, KnownCheck)


def product_version() -> str:
    try:
        return version("fleetsite")
    except PackageNotFoundError:
        return "source"


def worker_ids(tokens: Iterable[str | None]) -> dict[str, str]:
    """{token: worker id} of the consumers among these that are registered still."""
    asked = sorted({token for token in tokens if token})
    return dict(DispatchWorker.objects.filter(token__in=asked).values_list("token", "worker_id")) if asked else {}


class DatabaseWorkerRegistry:
    """One row per consumer, and one per name of an agent or check that any worker has ever announced."""

    def __init__(self, *, queue_backend: str, checks: Sequence[str] = ()) -> None:
        self._checks = checks
        self._queue_backend = queue_backend
        self._version = product_version()
        self._announced: dict[str, float] = {}

    def beat(self, beat: Beat) -> bool:
        now = store_now()
        row = {
            "token": beat.token,
            "host": beat.host,
            "pid": beat.pid,
            "capacity": beat.capacity,
            "active_sessions": [_run(lease, stuck=lease in beat.stuck) for lease in beat.active],
            "stuck": len(beat.stuck),
            "queue_backend": self._queue_backend,
            "version": self._version,
            "agents": list(beat.serves.agents),
            "kinds": list(beat.serves.kinds),
            "last_heartbeat": now,
        }
        announces = time.monotonic() - self._announced.get(beat.worker_id, -ANNOUNCE_S) >= ANNOUNCE_S
        with transaction.atomic():
            started_at = datetime.fromtimestamp(beat.started_at, UTC)
            worker, _ = DispatchWorker.objects.update_or_create(
                worker_id=beat.worker_id, defaults=row, create_defaults={**row, "started_at": started_at}
            )
            if announces:
                _announce(KnownAgent, beat.serves.agents, now)
                _announce(KnownCheck, self._checks, now)
        if announces:
            self._announced[beat.worker_id] = time.monotonic()
        return worker.draining

    def leave(self, worker_id: str) -> None:
        DispatchWorker.objects.filter(worker_id=worker_id).delete()


def _announce(model: type[M], names: Sequence[str], now: datetime) -> None:
    model._default_manager.bulk_create(
        [model(name=name, first_seen=now, last_seen=now) for name in names],
        update_conflicts=True,
        unique_fields=["name"],
        update_fields=["last_seen"],
    )


def _run(lease: Lease, *, stuck: bool) -> dict[str, str | bool]:
    run: dict[str, str | bool] = {"tenant": lease.tenant, "session_id": lease.session_id, "job_id": lease.job_id}
    return {**run, "stuck": True} if stuck else run
