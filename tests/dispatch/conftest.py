"""A store and a queue that begin empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.mock_broker import MockBroker


@pytest.fixture
def world(transactional_db: None) -> Iterator[None]:
    """An authority of its own over the test's database, and a queue that agrees with an empty state store."""
    # this file is loaded before Django is ready
    from tests.dispatch.authority.world import authority, forget

    forget()
    authority().repair()  # opens the queue, and ends its rebuilding
    yield
    forget()


@pytest.fixture
def broker() -> Iterator[MockBroker]:
    """One of librdkafka's own, with one topic of two partitions."""
    with MockBroker("agent_turns", 2) as made:
        yield made
