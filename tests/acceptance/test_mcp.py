"""The tools of the MCP server answer what REST answers, over stdio and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api import Api
from tests.support.fleet import Fleet, new_session
from tests.support.mcp_client import Connect, Tools, over_http, over_stdio, talk
from tests.support.processes import Proc, until

pytestmark = [pytest.mark.store, pytest.mark.process]

JOBS, SESSIONS = "graph_orchestrate", "graph_sessions"
NOBODY = "orch-" + "0" * 32


@pytest.fixture(scope="module")
def served(installation: Fleet) -> Iterator[tuple[Proc, str]]:
    """The server over HTTP, and its address."""
    server = installation.spawn("mcp", "manage.py", "run_mcp_server", "--http", "127.0.0.1:0")
    server.wait_for_text("/mcp", 30)
    yield server, server.text().split("MCP at ")[1].split()[0]
    installation.stop([server])


@pytest.fixture(scope="module", params=["stdio", "http"])
def connect(request: pytest.FixtureRequest, installation: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Connect:
    key = installation._keys["t1"]
    if request.param == "http":
        return over_http(request.getfixturevalue("served")[1], key)
    file = tmp_path_factory.mktemp("key") / "key"
    file.write_text(f"{key}\n")
    return over_stdio(installation.variables(AGENT_API_KEY_FILE=file))


def test_each_answer_is_that_of_rest_byte_by_byte(
    fleet: Fleet, api: Api, standing_worker: Proc, connect: Connect
) -> None:
    session = new_session()
    done, theirs = api.dispatch("note", session), fleet.api("t2").dispatch("note")
    asked = api.dispatch("ask")
    api.finish([done], 20)
    until(lambda: api.status(asked) == "suspended", 20, "it asks")
    calls: list[tuple[str, str, dict[str, Any]]] = [
        *((JOBS, "POST", {"action": action, "job_id": done}) for action in ("status", "result", "explain", "events")),
        (JOBS, "POST", {"action": "wait", "job_id": done, "timeout_s": 1}),
        (JOBS, "POST", {"action": "list", "session_id": session, "limit": 1}),
        *((JOBS, "POST", {"action": action, "job_id": theirs}) for action in ("status", "cancel", "retry", "result")),
        (JOBS, "POST", {"action": "status", "job_id": NOBODY}),
        (JOBS, "POST", {"action": "retry", "job_id": done}),
        (JOBS, "POST", {"action": "dispatch", "task": "", "agent_nmae": "x"}),
        (JOBS, "POST", {"action": "dispatch", "task": "\x00"}),
        (JOBS, "POST", {"action": "what"}),
        (JOBS, "POST", {"task": "no action"}),
        (SESSIONS, f"GET /api/sessions/{session}", {"action": "get", "session_id": session}),
        (SESSIONS, "GET /api/sessions?limit=1", {"action": "list", "limit": 1}),
        (SESSIONS, "GET /api/sessions/nobody", {"action": "get", "session_id": "nobody"}),
        (SESSIONS, "GET /api/sessions?limit=1000", {"action": "list", "limit": 1000}),
        (SESSIONS, "POST /api/fleet/pause", {"action": "pause", "session_ids": [session]}),
        (SESSIONS, "POST /api/fleet/kill", {"action": "kill", "session_ids": ["x"], "reason": "r"}),
        (SESSIONS, f"POST /api/sessions/{session}/reply", {"action": "reply", "session_id": session, "text": "hm"}),
    ]

    async def say(tools: Tools) -> list[tuple[bool, str]]:
        return [await tools.call(tool, **arguments) for tool, _, arguments in calls]

    for (tool, address, arguments), (failed, text) in zip(calls, talk(connect, say), strict=True):
        method, _, path = address.partition(" ")
        rest = {key: value for key, value in arguments.items() if key not in ("action", "session_id")}
        body = arguments if tool == JOBS else rest if method == "POST" else None
        answer = api.request(method, path or "/api/graph/jobs", body)
        assert text == answer.text, arguments
        assert failed == (answer.status >= 400), arguments


def test_a_call_that_is_repeated_with_its_key_finds_the_same_job_and_a_running_turn_is_told_to_stop(
    fleet: Fleet, api: Api, standing_worker: Proc, connect: Connect
) -> None:
    body = {
        "action": "dispatch",
        "task": "x",
        "agent_name": "wait",
        "payload": {"s": 30},
        "idempotency_key": new_session(),
    }

    async def twice(tools: Tools) -> list[dict[str, Any]]:
        return [json.loads((await tools.call("graph_jobs", **body))[1]) for _ in range(2)]

    first, again = talk(connect, twice)
    assert again == {**first, "replayed": True}
    job = first["job_id"]
    fleet.until_begun(job)

    async def cancel(tools: Tools) -> tuple[str, str]:
        asked = await tools.call(JOBS, action="cancel", job_id=job, reason="enough")
        ended = await tools.call(JOBS, action="wait", job_id=job, timeout_s=10)
        return json.loads(asked[1])["cancel"], json.loads(ended[1])["status"]

    assert talk(connect, cancel) == ("requested", "cancelled")
    assert len(fleet.journal.runs(job)) == 1


def test_a_question_is_answered_and_the_same_turn_goes_on(
    fleet: Fleet, api: Api, standing_worker: Proc, connect: Connect
) -> None:
    session = new_session()
    asking = api.dispatch("ask", session)
    api.until(asking, "suspended", within=20)

    async def answer(tools: Tools) -> list[tuple[bool, str]]:
        return [await tools.call(SESSIONS, action="reply", session_id=session, text="green") for _ in range(2)]

    (failed, first), (refused, second) = talk(connect, answer)
    assert (failed, json.loads(first)["job_id"]) == (False, asking)
    assert (refused, json.loads(second)["code"]) == (True, "no_question")
    done = api.finish([asking], 20)[asking]
    assert (done["status"], done["attempt"]) == ("succeeded", 1)


def test_another_tenants_session_is_not_found_and_nothing_is_done_to_it(
    fleet: Fleet, standing_worker: Proc, connect: Connect
) -> None:
    other = fleet.api("t2")
    session = new_session()
    asking = other.dispatch("ask", session)
    other.until(asking, "suspended", within=20)

    async def say(tools: Tools) -> list[tuple[bool, str]]:
        return [
            await tools.call(SESSIONS, action="get", session_id=session),
            await tools.call(SESSIONS, action="reply", session_id=session, text="mine"),
            await tools.call(JOBS, action="explain", job_id=asking),
            await tools.call(JOBS, action="events", job_id=asking),
            *[
                await tools.call(SESSIONS, action=verb, session_ids=[session], reason="mine")
                for verb in ("pause", "resume", "kill")
            ],
        ]

    answers = talk(connect, say)
    said = [json.loads(text) for _, text in answers[:4]]
    assert [one.get("code", one["status"]) for one in said] == ["not_found"] * 4
    assert [json.loads(text)["counts"] for _, text in answers[4:]] == [{"not_found": 1}] * 3
    assert other.status(asking) == "suspended"


def test_health_and_topology_are_read_and_a_session_is_steered(
    fleet: Fleet, api: Api, standing_worker: Proc, connect: Connect
) -> None:
    session = new_session()
    api.finish([api.dispatch("note", session)], 20)

    async def say(tools: Tools) -> list[dict[str, Any]]:
        answers = [
            await tools.call(SESSIONS, action="health"),
            await tools.call(SESSIONS, action="topology", limit=1),
            await tools.call(SESSIONS, action="pause", session_ids=[session], reason="look"),
            await tools.call(SESSIONS, action="resume", session_ids=[session], reason="done"),
        ]
        assert not any(failed for failed, _ in answers)
        return [json.loads(text) for _, text in answers]

    health, topology, paused, resumed = talk(connect, say)
    assert health["evidence"]["schema_version"] == "fleet.health.v1"
    assert topology["page"]["returned"] == 1
    assert [answer["counts"] for answer in (paused, resumed)] == [{"applied": 1}] * 2
    audited = fleet.state_sql("SELECT count(*) FROM audit_entries WHERE object_id = ? AND verb = 'pause'", session)
    assert audited == [(1,)]


def test_http_opens_to_nobody_without_a_key(fleet: Fleet, served: tuple[Proc, str]) -> None:
    port = int(served[1].rsplit(":", 1)[1].partition("/")[0])
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    for key in ("", "fs_unknown"):
        answer = Api(port, key).request("POST", "/mcp", listing)
        assert answer.status == 401
        assert answer.json()["code"] == "unauthenticated"
    foreign = fleet.api("t1")
    assert Api(port, foreign.key).request("POST", "/mcp", listing, headers={"Host": "evil.example"}).status == 421


def test_over_stdio_a_key_is_needed_at_start(fleet: Fleet, tmp_path: Path) -> None:
    nothing = fleet.spawn("mcp", "manage.py", "run_mcp_server")
    wrong = tmp_path / "key"
    wrong.write_text("fs_unknown")
    refused = fleet.spawn("mcp", "manage.py", "run_mcp_server", env={"AGENT_API_KEY_FILE": wrong})
    address = fleet.spawn("mcp", "manage.py", "run_mcp_server", "--http", "here")
    assert [proc.wait(30) for proc in (nothing, refused, address)] == [2, 2, 2]
    assert "AGENT_API_KEY_FILE: must name a file" in nothing.text()
    assert "AGENT_API_KEY_FILE: its key is unknown" in refused.text()
    assert "fs_unknown" not in refused.text()
    assert "--http: must be HOST:PORT" in address.text()
