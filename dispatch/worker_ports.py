"""What a worker tells of itself, and whom: Protocols and the records that cross them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dispatch.ports import Lease, Serves, Settled

ANNOUNCE_S = 300.0  # between two announcements of a consumer's agents and checks


@dataclass(frozen=True, kw_only=True, slots=True)
class Beat:
    """What a consumer's own loop reports of itself."""

    worker_id: str
    token: str
    host: str
    pid: int
    capacity: int
    active: Sequence[Lease]
    stuck: Sequence[Lease]  # those of the active that were settled without their runs, which go on
    serves: Serves
    started_at: float  # unix time


class WorkerRegistry(Protocol):
    """The rows by which others see the workers. Deleting one costs nothing but sight: leases do not hang on it."""

    def beat(self, beat: Beat) -> bool:
        """Write the row; answers whether an operator wants this consumer to drain."""
        ...

    def leave(self, worker_id: str) -> None: ...


class WorkerEvents(Protocol):
    """What happens in a worker, said once; logs and metrics subscribe."""

    def claimed(self, lease: Lease) -> None: ...
    def ended(self, lease: Lease, outcome: str, run_s: float) -> None: ...
    def settled(self, settled: Settled, lease: Lease) -> None: ...
    def refused(self, lease: Lease) -> None:
        """The fence of a finished run was lost: nothing of it was written."""
        ...

    def lease_lost(self, lease: Lease) -> None: ...
    def stuck(self, lease: Lease) -> None: ...
    def blind(self, error: Exception, seconds: float) -> None:
        """The claim loop or the lease keeper cannot reach its store."""
        ...


Clock = Callable[[], float]
