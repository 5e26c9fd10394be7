"""Names and tokens of a worker process's consumers."""

from __future__ import annotations

import os
import secrets

from dispatch.ports import Serves
from dispatch.worker.consumer import ConsumerSettings


def consumer_settings(
    count: int,
    *,
    host_label: str,
    capacity: int,
    serves: Serves,
    ttl_s: float,
    heartbeat_s: float,
    max_capacity: int | None = None,
    once: bool = False,
    drain: bool = False,
) -> list[ConsumerSettings]:
    """One for each consumer: `<label>:<pid>:agent-dispatch:<n>`, with an opaque random owner of its own."""
    pid = os.getpid()
    return [
        ConsumerSettings(
            worker_id=f"{host_label}:{pid}:agent-dispatch:{number}",
            owner=secrets.token_hex(16),
            host=host_label,
            pid=pid,
            capacity=capacity,
            serves=serves,
            ttl_s=ttl_s,
            heartbeat_s=heartbeat_s,
            max_capacity=max_capacity,
            once=once,
            drain=drain,
        )
        for number in range(count)
    ]
