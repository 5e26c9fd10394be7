"""A caller of the REST API with one key."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tests.support.processes import NotInTime, until

TERMINAL = frozenset({"succeeded", "failed", "cancelled", "dead_letter"})


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        return json.loads(self.text)


class Api:
    """One caller with one key. Safe to use from many threads: each request has a connection of its own."""

    def __init__(self, port: int, key: str) -> None:
        self.key = key
        self._port = port

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        timeout: float = 60,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=timeout)
        headers = {"Authorization": f"Bearer {self.key}", "Connection": "close", **(headers or {})}
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if raw is not None:
            headers["Content-Type"] = "application/json"
        with closing(connection):
            connection.request(method, path, raw, headers)
            got = connection.getresponse()
            return Answer(got.status, dict(got.headers), got.read().decode())

    def get(self, path: str) -> Any:
        answer = self.request("GET", path)
        assert answer.status == 200, f"GET {path}: {answer.status} {answer.text[:500]}"
        return answer.json()

    def call(self, action: str, *, timeout: float = 60, **fields: Any) -> Answer:
        return self.request("POST", "/api/graph/jobs", {"action": action, **fields}, timeout=timeout)

    def ok(self, action: str, **fields: Any) -> Any:
        answer = self.call(action, **fields)
        assert answer.status in (200, 202), f"{action}: {answer.status} {answer.text[:500]}"
        return answer.json()

    def dispatch(self, agent: str, session: str | None = None, *, s: float | None = None, **fields: Any) -> str:
        """Dispatch one job and answer its id; `s` becomes payload.s."""
        fields = {"task": "do it", "agent_name": agent, **fields}
        if session is not None:
            fields["session_id"] = session
        if s is not None:
            fields["payload"] = {"s": s, **fields.get("payload", {})}
        return str(self.ok("dispatch", **fields)["job_id"])

    def status(self, job_id: str) -> str:
        return str(self.ok("status", job_id=job_id)["status"])

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.get(f"/api/graph/jobs/{job_id}"))

    def jobs(self, status: str | None = None) -> list[dict[str, Any]]:
        """All pages of the list."""
        found: list[dict[str, Any]] = []
        wanted: dict[str, object] = {"limit": 500} | ({"status": status} if status else {})
        while True:
            page = self.ok("list", **wanted)
            found += page["jobs"]
            if page["next_cursor"] is None:
                return found
            wanted["cursor"] = page["next_cursor"]

    def explain(self, job_id: str) -> dict[str, Any]:
        return dict(self.ok("explain", job_id=job_id))

    def control(self, verb: str, *sessions: str) -> dict[str, str]:
        """Pause, resume or kill: {session id: outcome}."""
        answer = self.request("POST", f"/api/fleet/{verb}", {"session_ids": sessions, "reason": "a test"})
        assert answer.status == 200, answer.text
        return {one["session_id"]: one["outcome"] for one in answer.json()["results"]}

    def until(self, job_id: str, *wanted: str, within: float) -> None:
        try:
            until(lambda: self.status(job_id) in wanted, within, f"{job_id} is {' or '.join(wanted)}", every=0.05)
        except NotInTime as late:
            raise NotInTime(f"{late}; {self.call('explain', job_id=job_id).text}") from None

    def finish(self, job_ids: Iterable[str], within: float) -> dict[str, dict[str, Any]]:
        """The jobs by id, once all of them have ended."""
        end = time.monotonic() + within
        ids = list(job_ids)
        for job_id in ids:
            self.until(job_id, *TERMINAL, within=max(0.0, end - time.monotonic()))
        return {job_id: self.job(job_id) for job_id in ids}
