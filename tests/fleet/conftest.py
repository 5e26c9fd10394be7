"""A queue that agrees with an empty state store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def fleet_queue(db: None) -> Iterator[Path | None]:
    """Empty the queue and end its rebuilding; answers the queue's file where it has one."""
    # this file is loaded before Django is ready
    from dispatch import wiring
    from dispatch.transports.sqlite import SQLiteTransport

    transport = wiring.transport()
    if not isinstance(transport, SQLiteTransport):
        yield None
        return
    transport.ack([row.item_id for row in transport.page(after=0, limit=10_000)])
    transport.rebuilt()
    yield transport.path
    transport.close()
