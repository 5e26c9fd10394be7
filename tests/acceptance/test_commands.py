"""Commands as agents: real ones, under real workers that are told, frozen and killed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.fleet import TTL_S, Fleet, Template, new_session
from tests.support.processes import until
from tests.support.trees import alive, grown, told_at, tree

pytestmark = [pytest.mark.process, pytest.mark.store]

GRACE_S, SLACK_S = 1, 3
# What no store takes, a flood, and a child that keeps stdout open
HOSTILE = r"printf 'a\000b\377\355\240\200'; head -c 50000000 /dev/zero | tr '\000' x; (trap '' TERM; sleep 100) & :"
ASKS = """
import json, sys
turn = json.load(sys.stdin)
say = lambda kind, **more: print(json.dumps({"fleetsite": kind, **more}), flush=True)
say("progress", done=1, total=2)
if turn["reply"] is None:
    say("checkpoint", value={"asked": turn["task"]})
    say("needs_input", question="which?", choices=["a", "b"])
    sys.exit()
say("output", text="thinking")
say("state", value={"n": turn["state"].get("n", 0) + 1})
say("result", value={"reply": turn["reply"], "checkpoint": turn["checkpoint"], "payload": turn["payload"]})
"""


def agents(place: Path) -> str:
    kept = "cat >>kept; cat kept; env | cut -d= -f1 | sort | tr '\\n' ' ' >&2; exit $(wc -l <kept)"
    commands: dict[str, dict[str, object]] = {
        "tree": {"argv": tree(place), "stdin": "none", "stop_grace_s": GRACE_S},
        "hasty_tree": {
            "argv": tree(place),
            "stdin": "none",
            "stop_grace_s": GRACE_S,
            "timeout_s": 2,
            "max_attempts": 1,
        },
        "kept": {"argv": ["sh", "-c", kept], "max_attempts": 1},
        "hostile": {"argv": ["sh", "-c", HOSTILE], "output_limit_bytes": 20_000, "stop_grace_s": GRACE_S},
        "asks": {"argv": [sys.executable, "-c", ASKS], "stdin": "json", "output": "jsonl"},
    }
    lines = []
    for name, keys in commands.items():
        lines += [f"[agents.{name}]", 'kind = "command"', *(f"{key} = {json.dumps(keys[key])}" for key in keys)]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trees")


@pytest.fixture(scope="module")
def installation(template: Template, witness: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet whose processes all have the commands."""
    file = witness / "agents.toml"
    file.write_text(agents(witness))
    with Fleet(tmp_path_factory.mktemp("fleet") / "f", template, AGENTS_FILE=file) as fleet:
        yield fleet


def until_gone(witness: Path, job_id: str, within: float) -> None:
    until(lambda: not alive(witness, job_id), within, f"nothing is left of the command of {job_id}")


def grow(api: Api, witness: Path, agent: str = "tree", session: str | None = None, **fields: Any) -> str:
    """Dispatch a tree; answers when it has grown."""
    job = api.dispatch(agent, session, **fields)
    until(lambda: grown(witness, job), 20, "the tree has grown")
    return job


def test_a_session_has_a_directory_and_state_and_a_command_can_ask(fleet: Fleet, api: Api) -> None:
    fleet.worker(1, "--capacity", 4)
    session = new_session()
    kept = [api.dispatch("kept", session, task=text) for text in ("one\n", "two\n")]
    asking, second = api.dispatch("asks", session, payload={"x": 1}), api.dispatch("asks", session)
    jobs = api.finish(kept, 20)
    texts = [chunk["text"] for job_id in kept for chunk in chunks(fleet, job_id)]
    assert texts == ["one\n", "one\ntwo\n"]
    first = jobs[kept[0]]
    assert (first["status"], first["error"]["code"]) == ("dead_letter", "agent_error")
    message = first["error"]["message"]
    assert message.startswith("CommandFailed: sh ended with exit code 1: FLEETSITE_AGENT ")
    assert {"STATE_DB_URI", "DJANGO_SECRET_KEY", "AGENT_DATA_DIR", "FLEET_JOURNAL"}.isdisjoint(message.split())
    for job in (asking, second):
        api.until(job, "suspended", within=10)
        answer = api.request("POST", f"/api/sessions/{session}/reply", {"choice": "b"})
        assert answer.status == 200, answer.text
    done = api.finish([asking, second], 20)[asking]
    assert done["result"] == {"reply": "b", "checkpoint": {"asked": "do it"}, "payload": {"x": 1}}
    assert api.get(f"/api/sessions/{session}")["state"] == {"n": 2}
    assert {"done": 1, "total": 2, "message": ""} in chunks(fleet, asking)


def chunks(fleet: Fleet, job_id: str) -> list[dict[str, object]]:
    query = "SELECT c.data FROM output_chunks c JOIN work_items i ON i.id = c.work_item_id WHERE i.job_id = ?"
    rows = fleet.state_sql(query + " ORDER BY c.id", job_id)
    return [json.loads(data) if isinstance(data, str) else data for (data,) in rows]


def test_a_flood_of_what_cannot_be_stored_ends_in_a_marked_result(fleet: Fleet, api: Api) -> None:
    fleet.worker(1)
    job = api.dispatch("hostile")
    done = api.finish([job], 20)[job]
    assert (done["status"], done["result"]["_cleaned"]) == ("succeeded", ["nul"])
    assert done["result"]["value"]["bytes"] == 50_000_007
    told = "".join(str(chunk["text"]) for chunk in chunks(fleet, job))
    assert told.startswith("a\ufffdb\ufffd")
    assert told.endswith("x\n[output beyond 20000 bytes is not kept]\n")


def test_cancel_kill_deadline_and_time_limit_end_the_whole_command_and_say_so(
    fleet: Fleet, api: Api, witness: Path
) -> None:
    fleet.worker(1, "--capacity", 8)
    session = new_session()
    hasty = api.dispatch("hasty_tree")
    late = api.dispatch("tree", deadline_s=4)
    cancelled, killed = grow(api, witness), grow(api, witness, session=session)
    asked = time.monotonic()
    assert api.ok("cancel", job_id=cancelled)["cancel"] == "requested"
    assert api.control("kill", session)[session] in ("requested", "applied")
    jobs = api.finish([hasty, late, cancelled, killed], 15)
    ends = {job_id: (job["status"], job["error"]["code"]) for job_id, job in jobs.items()}
    assert ends == {
        hasty: ("dead_letter", "timeout"),
        late: ("cancelled", "expired"),
        cancelled: ("cancelled", "cancelled"),
        killed: ("cancelled", "cancelled"),
    }
    assert [job_id for job_id in jobs if alive(witness, job_id)] == [], "each was settled when nothing was left of it"
    assert all(told_at(witness, job_id) - asked <= 2.2 for job_id in (cancelled, killed))
    assert all(jobs[job_id]["stopped_at"] for job_id in (cancelled, killed, late))


def test_nothing_of_a_command_outlives_a_worker_that_is_killed_hands_back_or_loses_its_lease(
    fleet: Fleet, api: Api, witness: Path
) -> None:
    first = fleet.worker(1)
    orphan = grow(api, witness)
    first.kill()
    until_gone(witness, orphan, GRACE_S + SLACK_S)
    second = fleet.worker(1, "--capacity", 3, "--grace", 0)
    stolen = grow(api, witness)
    fleet.state_sql("UPDATE work_items SET epoch = epoch + 1 WHERE job_id = ?", stolen)
    until_gone(witness, stolen, 2 + GRACE_S + SLACK_S)
    returned = grow(api, witness)
    second.signal(15)
    assert second.wait(10) == 0
    until_gone(witness, returned, GRACE_S + SLACK_S)
    assert (api.status(returned), api.job(returned)["attempt"]) == ("pending", 0)
    fleet.worker(1)
    jobs = api.finish([orphan, stolen, returned], TTL_S + 20)
    assert {(job["status"], job["result"]) for job in jobs.values()} == {("succeeded", "again")}


def test_nothing_of_a_command_outlives_the_lease_of_a_frozen_worker(fleet: Fleet, api: Api, witness: Path) -> None:
    first = fleet.worker(1)
    job = grow(api, witness)
    renewed = renewal_seen(fleet, job)
    fleet.freeze(first)
    second = fleet.launch(1)
    until_gone(witness, job, TTL_S + GRACE_S + SLACK_S)
    assert told_at(witness, job) > renewed + TTL_S - 1, "until then the lease was held"
    fleet.until_live(second)
    done = api.finish([job], TTL_S + 15)[job]
    assert (done["status"], done["result"]) == ("succeeded", "again")
    fleet.thaw(first)
    first.wait_for_text("lease is no longer held", 10)
    assert api.job(job)["result"] == "again"
    assert first.alive
    assert second.alive


def renewal_seen(fleet: Fleet, job_id: str) -> float:
    """Wait for a renewal of the job's lease; answers when it was seen."""
    query = "SELECT lease_expires_at FROM work_items WHERE job_id = ?"
    before = fleet.state_sql(query, job_id)
    until(lambda: fleet.state_sql(query, job_id) != before, 10, "the lease is renewed")
    return time.monotonic()
