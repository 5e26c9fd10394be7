"""Who listens to a worker: its log. Messages are constant, ids are in `extra`; no task text, result or secret."""

from __future__ import annotations

import logging
from typing import Any

from dispatch.errors import DispatchError
from dispatch.ports import Lease, Settled

_STORES = {"django", "psycopg", "psycopg_pool", "sqlite3"}

log = logging.getLogger("dispatch.worker")


def _ids(lease: Lease) -> dict[str, Any]:
    return {
        "job_id": lease.job_id,
        "session_id": lease.session_id,
        "agent_name": lease.agent_name,
        "attempt": lease.attempt,
        "epoch": lease.epoch,
    }


class LoggedEvents:
    """The log subscriber."""

    def claimed(self, lease: Lease) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug("turn claimed", extra=_ids(lease))

    def ended(self, lease: Lease, outcome: str, run_s: float) -> None:
        if log.isEnabledFor(logging.DEBUG):
            log.debug("run ended", extra={**_ids(lease), "outcome": outcome, "run_s": round(run_s, 3)})

    def settled(self, settled: Settled, lease: Lease) -> None:
        log.info("turn settled", extra={**_ids(lease), "status": settled.status, "verb": settled.verb})

    def refused(self, lease: Lease) -> None:
        log.warning("commit refused: the lease is no longer held", extra=_ids(lease))

    def lease_lost(self, lease: Lease) -> None:
        log.warning("lease lost", extra=_ids(lease))

    def stuck(self, lease: Lease) -> None:
        log.warning("a run did not stop within its grace; it was settled without it", extra=_ids(lease))

    def blind(self, error: Exception, seconds: float) -> None:
        facts = {"error": type(error).__name__, "for_s": round(seconds, 1)}
        if _is_outage(error):
            log.error("the store cannot be reached", extra=facts)
        else:
            log.error("a round failed", exc_info=error, extra=facts)


def _is_outage(error: Exception) -> bool:
    """Whether it came from the store or the queue; anything else is a fault of ours, and its traceback is wanted."""
    return isinstance(error, DispatchError) or type(error).__module__.split(".")[0] in _STORES
