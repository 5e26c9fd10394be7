"""A tool call is one request of the REST API, and the tools say what REST takes."""

from __future__ import annotations

import jsonschema
import pytest

from dispatch.api.actions import ACTIONS
from dispatch.errors import Invalid, SessionNotFound
from dispatch.mcp.calls import SESSION_ACTIONS, Call, call_for
from dispatch.mcp.schemas import JOB_ACTIONS, tools

READ = {"method": "GET", "body": None}


@pytest.mark.parametrize("tool", ["graph_orchestrate", "graph_jobs"])
def test_the_job_tools_send_their_arguments_as_the_body(tool: str) -> None:
    sent = {"action": "status", "job_id": "x", "anything": [1]}
    assert call_for(tool, sent) == Call(method="POST", path="/api/graph/jobs", body=sent)


@pytest.mark.parametrize(
    ("arguments", "method", "path", "query", "body"),
    [
        ({"action": "health"}, "GET", "/api/fleet/health", "", None),
        ({"action": "topology", "limit": 5, "status": None}, "GET", "/api/fleet/topology", "limit=5", None),
        ({"action": "list", "domain": "a b&c"}, "GET", "/api/sessions", "domain=a+b%26c", None),
        ({"action": "get", "session_id": "s:1@x"}, "GET", "/api/sessions/s%3A1%40x", "", None),
        (
            {"action": "reply", "session_id": "s", "text": "yes"},
            "POST",
            "/api/sessions/s/reply",
            "",
            {"text": "yes"},
        ),
        (
            {"action": "kill", "domain": "d", "reason": "r"},
            "POST",
            "/api/fleet/kill",
            "",
            {"domain": "d", "reason": "r"},
        ),
    ],
)
def test_the_session_tool_goes_to_the_address_of_its_action(
    arguments: dict[str, object], method: str, path: str, query: str, body: object
) -> None:
    made = call_for("graph_sessions", arguments)
    assert (made.method, made.path, made.query, made.body) == (method, path, query, body)


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("graph", {}, "name"),
        ("graph_sessions", {}, "action"),
        ("graph_sessions", {"action": "drop"}, "action"),
        ("graph_sessions", {"action": ["health"]}, "action"),
        ("graph_sessions", {"action": "get"}, "session_id"),
        ("graph_sessions", {"action": "list", "domain": ["a"]}, "domain"),
        ("graph_sessions", {"action": "list", "limit": True}, "limit"),
    ],
)
def test_what_is_no_call_is_refused_by_the_name_of_the_field(
    tool: str, arguments: dict[str, object], field: str
) -> None:
    with pytest.raises(Invalid) as refused:
        call_for(tool, arguments)
    assert list(refused.value.fields) == [field]


def test_what_can_be_no_session_is_not_found() -> None:
    with pytest.raises(SessionNotFound):
        call_for("graph_sessions", {"action": "get", "session_id": "../graph/jobs"})


def test_each_tool_has_a_schema_with_all_that_its_actions_take() -> None:
    schemas = {tool["name"]: tool["inputSchema"] for tool in tools()}
    assert list(schemas) == ["graph_orchestrate", "graph_jobs", "graph_sessions"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    jobs = schemas["graph_orchestrate"]["properties"]
    assert jobs["action"]["enum"] == list(ACTIONS) == list(JOB_ACTIONS)
    assert {"task", "idempotency_key", "jobs", "timeout_s", "reason", "deadline_s", "cursor"} <= set(jobs)
    sessions = schemas["graph_sessions"]["properties"]
    assert sessions["action"]["enum"] == list(SESSION_ACTIONS)
    assert {"session_id", "session_ids", "filter", "reason", "text", "choice", "limit", "offset"} <= set(sessions)
