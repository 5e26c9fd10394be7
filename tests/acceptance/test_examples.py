"""The examples of a command with a memory and of a report in parts: what their pages show is what they do."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import pytest

from tests.support.api import Api
from tests.support.fleet import ROOT, Fleet, Template, new_session

pytestmark = [pytest.mark.process, pytest.mark.store]

COMMAND = ROOT / "docs" / "examples" / "command"
FAN_OUT = ROOT / "docs" / "examples" / "fan_out"


@pytest.fixture(scope="module")
def installation(template: Template, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with Fleet(
        tmp_path_factory.mktemp("examples") / "f",
        template,
        AGENT_MODULES="report",
        AGENTS_FILE=COMMAND / "agents.toml",
        PYTHONPATH=f"{FAN_OUT}:{ROOT}",
        PATH=f"{COMMAND}:{os.environ['PATH']}",
    ) as fleet:
        yield fleet


def test_the_ledger_remembers_in_its_session_and_refuses_what_it_does_not_understand(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    shown = re.findall(r"^\| `([^`]+)` \| (.+) \|$", (COMMAND / "README.md").read_text(), re.M)
    assert len(shown) == 3
    session = new_session()
    jobs = [api.dispatch("ledger", session, task=task) for task, _ in shown]
    other = api.dispatch("ledger", new_session(), task="total")
    wrong = [api.dispatch("ledger", new_session(), task=task) for task in ("+ many coffee", "sing")]
    ended = api.finish([*jobs, other, *wrong], 60)
    assert [(ended[job]["task"], ended[job]["result"]) for job in jobs] == shown
    assert ended[other]["result"] == "0 in 0 entries", "another session is another ledger"
    assert [(ended[job]["status"], ended[job]["attempt"]) for job in wrong] == [("failed", 1)] * 2
    assert "many is no amount" in ended[wrong[0]]["error"]["message"]


def test_the_report_is_put_together_from_its_children_by_a_worker_of_one_slot(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    body = json.loads((FAN_OUT / "dispatch.json").read_text())
    assert body.pop("action") == "dispatch"
    job = str(api.ok("dispatch", **body)["job_id"])
    done = api.finish([job], 60)[job]
    (shown,) = re.findall(r"^```json\n(.+)\n```$", (FAN_OUT / "README.md").read_text(), re.M)
    assert (done["status"], done["result"]) == ("succeeded", json.loads(shown)), done
    children = api.get("/api/graph/jobs?agent_name=count-words")["jobs"]
    assert sorted(one["task"] for one in children) == ["blank", "hamlet", "ozymandias"]
    assert len({one["session_id"] for one in children}) == 3, "each in a session of its own, so they run side by side"
