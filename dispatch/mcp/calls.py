"""What a tool call is as a REST request: one request for each, and no rule of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from dispatch.envelope import is_name
from dispatch.errors import Invalid, SessionNotFound

JOB_TOOLS = ("graph_orchestrate", "graph_jobs")
SESSION_TOOL = "graph_sessions"
JOBS = "/api/graph/jobs"
SESSIONS = "/api/sessions"
READS = {"health": "/api/fleet/health", "topology": "/api/fleet/topology", "list": SESSIONS}
WRITES = {"pause": "/api/fleet/pause", "resume": "/api/fleet/resume", "kill": "/api/fleet/kill"}
SESSION_ACTIONS = (*READS, "get", "reply", *WRITES)


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One request. `body` is None for a GET."""

    method: str
    path: str
    query: str = ""
    body: Mapping[str, Any] | None = None


def call_for(tool: str, arguments: Mapping[str, Any]) -> Call:
    """Raise Invalid for a tool or action that is none, SessionNotFound for what can be no session's id."""
    if tool in JOB_TOOLS:
        return Call(method="POST", path=JOBS, body=arguments)
    if tool != SESSION_TOOL:
        raise Invalid(fields={"name": f"must be one of {', '.join((*JOB_TOOLS, SESSION_TOOL))}"})
    rest = dict(arguments)
    action = rest.pop("action", None)
    if action not in SESSION_ACTIONS:
        raise Invalid(fields={"action": f"must be one of {', '.join(SESSION_ACTIONS)}"})
    if action in WRITES:
        return Call(method="POST", path=WRITES[action], body=rest)
    if action in READS:
        return Call(method="GET", path=READS[action], query=_query(rest))
    path = f"{SESSIONS}/{_session_id(rest)}"
    if action == "get":
        return Call(method="GET", path=path, query=_query(rest))
    return Call(method="POST", path=f"{path}/reply", body=rest)


def _session_id(arguments: dict[str, Any]) -> str:
    session_id = arguments.pop("session_id", None)
    if not isinstance(session_id, str):
        raise Invalid(fields={"session_id": "is missing: a text, the session's id"})
    if not is_name(session_id):
        raise SessionNotFound
    return quote(session_id, safe="")


def _query(arguments: Mapping[str, Any]) -> str:
    """Texts and numbers as a query string; null stands for what was not given."""
    given = {name: value for name, value in arguments.items() if value is not None}
    wrong = [name for name, value in given.items() if isinstance(value, bool) or not isinstance(value, str | int)]
    if wrong:
        raise Invalid(fields={name[:120]: "must be a text or a whole number" for name in wrong[:20]})
    return urlencode(given, errors="surrogatepass")
