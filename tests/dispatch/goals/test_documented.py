"""The check that the documents show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dispatch.agents.checks import CHECKS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "agents.md"


def test_the_documented_check_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CHECKS, "_checks", {})
    (block,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S) if "@check" in code]
    exec(block, {"__name__": "documented"})
    (name,) = CHECKS.names()
    found: Any = CHECKS.get(name)
    assert (found(None, "x" * 80), found(None, "x" * 81)) == (True, "81 characters, and at most 80 are wanted")
