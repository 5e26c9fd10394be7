"""docs/schedules.md against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dispatch.maintenance.schedules import GRACE_TICKS
from dispatch.management.commands import schedules
from dispatch.models.schedules import CATCH_UP, COUNTED, OVERLAP
from dispatch.schedules.catch_up import MOST, POLICIES
from dispatch.schedules.specs import MAX_JITTER_S, ScheduleBody

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "schedules.md").read_text()


def test_the_table_of_fields_is_that_of_the_body() -> None:
    table = PAGE.partition("## Fields")[2].partition("\n## ")[0]
    named = {name for row in re.findall(r"^\| (`.+?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)}
    assert named == set(ScheduleBody.model_fields), "mend the table of fields in docs/schedules.md"


@pytest.mark.parametrize("word", [*CATCH_UP, *OVERLAP, *COUNTED])
def test_every_policy_and_every_outcome_is_told(word: str) -> None:
    assert f"`{word}`" in PAGE, f"docs/schedules.md does not say what {word} means"


def test_the_commands_are_those_of_the_command_line() -> None:
    verbs = "|".join(schedules.ACTS)
    assert f"manage.py schedules {verbs}" in PAGE


def test_the_bounds_are_those_of_the_code() -> None:
    assert POLICIES == CATCH_UP
    assert f"the newest {MOST}" in PAGE
    assert f"at most {MAX_JITTER_S}" in PAGE
    assert GRACE_TICKS == 4, "docs/schedules.md, docs/operations.md and docs/fleet.md say four ticks"
