"""What only a Postgres store has: the second run of bin/test is about it, the first leaves these tests out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("STATE_DB_URI"):
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="about Postgres; runs in the part of the suite that has one"))
