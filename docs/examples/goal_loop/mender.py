"""An agent that edits a file until its tests pass, without any model: it knows one repair for each failing test."""

from __future__ import annotations

import re
from typing import Any

from dispatch.agents import TurnContext, agent

TESTS = """\
import unittest

from slug import slug


class SlugTest(unittest.TestCase):
    def test_lower(self):
        self.assertEqual(slug("Hello"), "hello")

    def test_spaces(self):
        self.assertEqual(slug("two words"), "two-words")

    def test_signs(self):
        self.assertEqual(slug("what?"), "what")
"""
DRAFT = """\
import re


def slug(text):
    return text
"""
REPAIRS = {
    "test_lower": ".lower()",
    "test_spaces": '.replace(" ", "-")',
    "test_signs": "",
}


@agent("mender")
def mender(turn: TurnContext) -> dict[str, Any]:
    """Write a draft; then mend what the last validation complained of first."""
    goal = turn.goal
    assert goal is not None, "dispatch it with kind goal_loop"
    assert goal.directory is not None, "its validation is a command, which runs beside the file"
    file = goal.directory / "slug.py"
    if not file.exists():
        (goal.directory / "test_slug.py").write_text(TESTS)
        file.write_text(DRAFT)
        return {"did": "wrote a draft"}
    failing = re.findall(r"^(?:FAIL|ERROR): (\w+)", goal.feedback, re.MULTILINE)
    broken = min(failing, key=list(REPAIRS).index)
    if broken == "test_signs":
        mended = file.read_text().replace("return text", 'return re.sub(r"[^\\w\\s-]", "", text)')
    else:
        mended = file.read_text().rstrip() + REPAIRS[broken] + "\n"
    file.write_text(mended)
    turn.emit(f"iteration {goal.iteration}: mended {broken}\n")
    return {"did": f"mended {broken}"}
