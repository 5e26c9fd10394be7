"""What a test needs of the machine and does not find: left out on a developer's machine, a failure under CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

# A test that moves, holds or removes the files of a SQLite installation.
about_files = pytest.mark.skipif(bool(os.environ.get("STATE_DB_URI")), reason="about the files of SQLite")


def missing(what: str) -> NoReturn:
    """Skip the test, or fail it when CI is set: there a missing part would hide that nothing was tested."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}; under CI a missing part is a failure", pytrace=False)
    pytest.skip(what)
