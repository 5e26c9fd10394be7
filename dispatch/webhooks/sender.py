"""Sends what is due: a few threads of the worker process, started when there is something to send."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping

from django.db import DatabaseError, InterfaceError, connections

from dispatch.clock import store_now
from dispatch.connections import release_connections
from dispatch.webhooks import outbox
from dispatch.webhooks.endpoints import secrets_of
from dispatch.webhooks.posting import Posted, post
from dispatch.webhooks.signing import headers

THREADS = 4
THREADS_OF_ONE = 2  # that one endpoint may hold up

log = logging.getLogger("dispatch.webhooks")


class Senders:
    """`kick` lets threads send until nothing is due. They hold no turn and no duty up, and end with the process."""

    def __init__(self, *, timeout_s: float, most_tries: int, allow_private: bool, version: str) -> None:
        self._timeout_s = timeout_s
        self._most = most_tries
        self._allow_private = allow_private
        self._agent = f"fleetsite/{version}"
        self._lock = threading.Lock()
        self._running = 0
        self._at: Counter[int] = Counter()  # endpoint: how many threads are at it

    def kick(self) -> int:
        """Start threads if something is due; answers how many run."""
        if outbox.is_due():
            with self._lock:
                missing = THREADS - self._running
                self._running += missing
            for _ in range(missing):
                threading.Thread(target=self._work, name="webhooks", daemon=True).start()
        return self._running

    def _work(self) -> None:
        try:
            while self.send_one():
                pass
        except (DatabaseError, InterfaceError) as error:
            log.warning("webhooks not sent", extra={"error": type(error).__name__})
        finally:
            connections.close_all()
            with self._lock:
                self._running -= 1

    def send_one(self) -> bool:
        """Claim a delivery, send it, settle it; False when there is none for this thread."""
        with self._lock:
            busy = [endpoint for endpoint, count in self._at.items() if count >= THREADS_OF_ONE]
        claimed = outbox.claim(lease_s=self._timeout_s + outbox.LEASE_MARGIN_S, busy=busy)
        if claimed is None:
            return False
        endpoint = claimed.delivery.watch.endpoint_id
        with self._lock:
            self._at[endpoint] += 1
        try:
            posted = self._post(claimed)
            state = outbox.settle(claimed, posted, most=self._most)
        finally:
            with self._lock:
                self._at[endpoint] -= 1
        level = logging.INFO if posted.taken else logging.WARNING
        log.log(level, "webhook sent", extra=_facts(claimed, posted, state))
        return True

    def _post(self, claimed: outbox.Claimed) -> Posted:
        delivery, now = claimed.delivery, store_now()
        secrets = secrets_of(delivery.watch.endpoint, now)
        body = delivery.body.encode()
        signed = headers(delivery_id=delivery.delivery_id, at=int(time.time()), body=body, secrets=secrets)
        sent = {"Content-Type": "application/json", "User-Agent": self._agent, **signed}
        release_connections()  # none is held while a receiver takes its time
        return post(delivery.watch.url, body, sent, timeout_s=self._timeout_s, allow_private=self._allow_private)


def _facts(claimed: outbox.Claimed, posted: Posted, state: str) -> Mapping[str, object]:
    """No address: what follows the host may be a secret."""
    return {
        "job_id": claimed.delivery.work_item.job_id,
        "delivery_id": claimed.delivery.delivery_id,
        "attempt": claimed.tries,
        "status": state,
        "http_status": posted.status,
        "error": posted.error,
    }
