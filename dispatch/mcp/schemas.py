"""What the tools say of themselves. Their inputs are read from the REST API's own models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from dispatch.api import inputs
from dispatch.mcp.calls import JOB_TOOLS, SESSION_ACTIONS, SESSION_TOOL

JOB_ACTIONS: dict[str, type[BaseModel]] = {
    "dispatch": inputs.DispatchAction,
    "dispatch_many": inputs.DispatchManyAction,
    "status": inputs.StatusAction,
    "wait": inputs.WaitAction,
    "result": inputs.ResultAction,
    "cancel": inputs.CancelAction,
    "retry": inputs.RetryAction,
    "explain": inputs.ExplainAction,
    "events": inputs.EventsAction,
    "iterations": inputs.IterationsAction,
    "redeliver": inputs.RedeliverAction,
    "list": inputs.ListAction,
}
_JOBS = (
    "Dispatch turns of agents and follow their jobs. action: dispatch (task; optional agent_name, session_id, payload, "
    "priority, idempotency_key …) answers a job handle at once; then, with its job_id: status, wait (up to 55 s), "
    "result, explain (why it does not run), events, iterations (of a goal_loop), cancel, retry, redeliver "
    "(delivery_id); list; dispatch_many (jobs). Repeat a call that was lost with the same idempotency_key: it answers "
    "the same job."
)
_SESSIONS = (
    "Look at the fleet and steer sessions. action: health, topology, list, get (session_id), reply (session_id and "
    "text or choice: answer an agent's question), pause, resume and kill (session_ids, or domain, or filter; with a "
    "reason)."
)


def tools() -> list[dict[str, Any]]:
    """Name, description and input schema of each tool."""
    jobs = _schema(JOB_ACTIONS, JOB_ACTIONS.values())
    sessions = _schema(
        SESSION_ACTIONS,
        (inputs.SessionListQuery, inputs.SteerBody, inputs.ReplyBody),
        session_id={"type": "string", "description": "get and reply: the session's id"},
        offset={"type": "integer", "minimum": 0, "description": "topology: how many sessions to pass over"},
    )
    return [
        *({"name": name, "description": _JOBS, "inputSchema": jobs} for name in JOB_TOOLS),
        {"name": SESSION_TOOL, "description": _SESSIONS, "inputSchema": sessions},
    ]


def _schema(actions: Iterable[str], models: Iterable[type[BaseModel]], **more: Any) -> dict[str, Any]:
    """An object of the action and of what any of the models takes; which goes with which is said by the refusal."""
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for model in models:
        schema = model.model_json_schema()
        properties |= {name: field for name, field in schema["properties"].items() if name not in properties}
        definitions |= schema.get("$defs", {})
    named = {"type": "string", "enum": list(actions), "description": "what to do"}
    whole = {"type": "object", "properties": {**properties, **more, "action": named}, "required": ["action"]}
    return {**whole, "$defs": definitions} if definitions else whole
