"""The requests of the API, as data: what is sent, whether it may be sent again, which statuses are answers."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from dispatch.client.errors import ClientMisuse
from dispatch.client.shapes import (
    CancelAnswer,
    DispatchBody,
    DispatchFields,
    Explanation,
    Health,
    IterationPage,
    JobDetails,
    JobEvent,
    JobPage,
    JobResult,
    JobState,
    Redelivered,
    ReplyAnswer,
    SessionDetails,
    SessionPage,
    Topology,
)

T = TypeVar("T")

JOBS = "/api/graph/jobs"
SESSIONS = "/api/sessions"
READ_S = 30.0  # a read that takes longer is lost
WAIT_S = 50.0  # of one `wait`, which the server bounds
WAIT_MARGIN_S = 15.0
MANY_S = 120.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Call(Generic[T]):
    """One request whose answer is a T.

    `repeatable`: sending it twice does no more than sending it once, so it is sent again when its answer is lost.
    """

    method: str
    path: str
    body: Mapping[str, Any] | None = None
    repeatable: bool = True
    read_s: float = READ_S
    answers: frozenset[int] = frozenset({200, 201, 202})


def dispatch(task: str, fields: DispatchFields) -> Call[Any]:
    """A dispatch, with an idempotency key of its own when the caller gives none."""
    body = {"action": "dispatch", **dispatch_body({"task": task, **fields})}
    return Call(method="POST", path=JOBS, body=body)


def dispatch_many(jobs: Sequence[DispatchBody]) -> Call[dict[str, Any]]:
    body = {"action": "dispatch_many", "jobs": [dispatch_body(job) for job in jobs]}
    return Call(method="POST", path=JOBS, body=body, read_s=MANY_S)


def dispatch_body(fields: Mapping[str, Any]) -> dict[str, Any]:
    """As it is sent: what is None left out, a time as text, and a key."""
    body = {name: value for name, value in fields.items() if value is not None}
    if isinstance(moment := body.get("run_at"), datetime):
        if moment.tzinfo is None:
            raise ClientMisuse("run_at: must have a time zone")
        body["run_at"] = moment.isoformat()
    body.setdefault("idempotency_key", f"client-{uuid.uuid4().hex}")
    return body


def _act(action: str, job_id: str, **fields: Any) -> Call[Any]:
    return Call(method="POST", path=JOBS, body={"action": action, "job_id": job_id, **fields})


def status(job_id: str) -> Call[JobState]:
    return _act("status", job_id)


def wait(job_id: str, timeout_s: float) -> Call[JobState]:
    bounded = min(timeout_s, WAIT_S)
    return Call(
        method="POST",
        path=JOBS,
        body={"action": "wait", "job_id": job_id, "timeout_s": bounded},
        read_s=bounded + WAIT_MARGIN_S,
    )


def result(job_id: str) -> Call[JobResult]:
    return _act("result", job_id)


def cancel(job_id: str, reason: str) -> Call[CancelAnswer]:
    return _act("cancel", job_id, reason=reason)


def retry(job_id: str, deadline_s: float | None) -> Call[Any]:
    fields = {} if deadline_s is None else {"deadline_s": deadline_s}
    body = {"action": "retry", "job_id": job_id, **fields}
    return Call(method="POST", path=JOBS, body=body, repeatable=False)  # the job may have ended again meanwhile


def explain(job_id: str) -> Call[Explanation]:
    return _act("explain", job_id)


def events(job_id: str) -> Call[dict[str, list[JobEvent]]]:
    return _act("events", job_id)


def iterations(job_id: str, limit: int | None, cursor: str | None) -> Call[IterationPage]:
    page = {"limit": limit, "cursor": cursor}
    return _act("iterations", job_id, **{name: value for name, value in page.items() if value is not None})


def redeliver(job_id: str, delivery_id: str) -> Call[Redelivered]:
    return _act("redeliver", job_id, delivery_id=delivery_id)


def read(job_id: str) -> Call[JobDetails]:
    return Call(method="GET", path=f"{JOBS}/{quote(job_id, safe='')}")


def job_list(**query: Any) -> Call[JobPage]:
    return Call(method="GET", path=JOBS + _query(query))


def session_list(**query: Any) -> Call[SessionPage]:
    return Call(method="GET", path=SESSIONS + _query(query))


def session_get(session_id: str) -> Call[SessionDetails]:
    return Call(method="GET", path=_session(session_id))


def session_reply(session_id: str, text: str | None, choice: str | None) -> Call[ReplyAnswer]:
    body = {name: value for name, value in (("text", text), ("choice", choice)) if value is not None}
    path = f"{_session(session_id)}/reply"
    return Call(method="POST", path=path, body=body, repeatable=False)  # the next question is not this one


def health() -> Call[Health]:
    # 503 with evidence in its body is an answer: the fleet is not ready
    return Call(method="GET", path="/api/fleet/health", answers=frozenset({200, 503}))


def topology(**query: Any) -> Call[Topology]:
    return Call(method="GET", path="/api/fleet/topology" + _query(query), answers=frozenset({200, 503}))


def stream_path(job_id: str) -> str:
    return f"{JOBS}/{quote(job_id, safe='')}/stream"


def _session(session_id: str) -> str:
    return f"{SESSIONS}/{quote(session_id, safe='')}"


def _query(query: Mapping[str, Any]) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""
