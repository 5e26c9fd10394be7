"""The example of an agent that is a model: what its page shows is what it does."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.fleet import ROOT, Fleet, Template
from tests.support.processes import Proc

pytestmark = [pytest.mark.process, pytest.mark.store]

PLACE = ROOT / "docs" / "examples" / "llm"
ADDRESS = "http://127.0.0.1:8765/v1"


def shown() -> list[tuple[str, str]]:
    """The tasks of the page and their results, in order."""
    rows = re.findall(r"^\| ([^`|]+) \| ([^|]+) \|$", (PLACE / "README.md").read_text(), re.M)
    return [row for row in rows if row != ("task", "result") and row[0] != "file"]


def test_the_help_desk_answers_as_its_page_shows(template: Template, tmp_path: Path) -> None:
    text = (PLACE / "agents.toml").read_text()
    assert ADDRESS in text
    for name in ("desk.md", "desk.py"):
        (tmp_path / name).write_text((PLACE / name).read_text())
    file = tmp_path / "agents.toml"
    argv = [sys.executable, str(PLACE / "model_server.py"), "--port", "0"]
    server = Proc("model", argv, log=tmp_path / "model.log", env={"PATH": os.environ["PATH"]}, cwd=tmp_path)
    with server:
        server.wait_for_text("/v1\n", 20)
        file.write_text(text.replace(ADDRESS, server.text().split()[-1]))
        answers(Fleet(tmp_path / "f", template, AGENTS_FILE=file, AGENT_MODULES=None, PYTHONPATH=tmp_path))


def answers(installed: Fleet) -> None:
    with installed as fleet:
        fleet.worker(1)
        api = fleet.api()
        rows = shown()
        assert len(rows) == 5
        jobs = [api.dispatch("desk", "office", task=task) for task, _ in rows]
        ended = api.finish(jobs, 60)
        assert [(ended[job]["task"], ended[job]["result"]) for job in jobs] == rows
        session = api.get("/api/sessions/office")
        assert session["state"]["notes"] == ["the key is under the mat", "that Ann likes tea"]
        assert len(session["state"]["conversation"]) == 5
        assert session["usage"]["tool_calls"] == 3
        assert session["usage"]["unpriced_requests"] == 0
        assert api.job(api.dispatch("", "office"))["agent_name"] == "desk", "the file's default"
