"""A store and a queue that begin empty."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture
def world(transactional_db: None) -> Iterator[None]:
    """An authority of its own over the test's database, and a queue that agrees with an empty state store."""
    # this file is loaded before Django is ready
    from tests.dispatch.authority.world import authority, forget

    forget()
    authority().repair()  # opens the queue, and ends its rebuilding
    yield
    forget()
