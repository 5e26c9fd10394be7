"""Each transport in turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(params=["memory", "stored", pytest.param("kafka", marks=pytest.mark.kafka)])
def queue(request: pytest.FixtureRequest, tmp_path: Path, transactional_db: None) -> Iterator[Any]:
    """An empty queue: one in memory, the durable one of the store that the tests run on, and that with a broker."""
    # this file is loaded before Django is ready
    from tests.dispatch.transports import queues

    transport = {"memory": queues.memory, "stored": queues.stored, "kafka": queues.kafka}[request.param](tmp_path)
    yield transport
    transport.close()
