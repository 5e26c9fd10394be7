"""Jobs for people at a terminal. What agents and callers wrote is made harmless first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dispatch.management.tables import cell, harmless, moment, pairs, table


def listed(body: Mapping[str, Any]) -> str:
    rows = [
        (
            job["job_id"],
            job["status"],
            job["agent_name"],
            job["session_id"],
            f"{job['attempt']} of {job['max_attempts']}",
            moment(job["created_at"]),
            job["task"],
        )
        for job in body["jobs"]
    ]
    told = table(("JOB", "STATUS", "AGENT", "SESSION", "TRIES", "CREATED", "TASK"), rows)
    return told if body["next_cursor"] is None else f"{told}\n\nmore: --cursor {body['next_cursor']}"


def shown(job: Mapping[str, Any]) -> str:
    error = job["error"]
    facts = [
        ("job", job["job_id"]),
        ("status", job["status"]),
        ("explain", job["explain"]["detail"]),
        ("agent", f"{job['agent_name']} ({job['kind']})"),
        ("session", f"{job['session_id']}, place {job['session_seq']}"),
        ("priority", job["priority"]),
        ("tries", f"{job['attempt']} of {job['max_attempts']}"),
        ("iterations", _iterations(job.get("goal"))),
        ("depends on", ", ".join(job["dependencies"])),
        ("created", moment(job["created_at"])),
        ("not before", moment(job["run_at"])),
        ("deadline", moment(job["deadline"])),
        ("started", moment(job["started_at"])),
        ("finished", moment(job["finished_at"])),
        ("cancel asked", moment(job["cancel_requested_at"])),
        ("cancel seen", moment(job["cancel_seen_at"])),
        ("stopped", moment(job["stopped_at"])),
        ("metadata", json.dumps(job["metadata"], ensure_ascii=False) if job["metadata"] else None),
        ("error", f"{error['code']}: {error['message']}" if error else None),
    ]
    parts = [
        pairs((name, value) for name, value in facts if value not in (None, "")),
        "task\n" + harmless(job["task"]),
        table(
            ("AT", "EVENT", "TO", "TRY", "WORKER", "REASON"),
            [(moment(e["at"]), e["event"], e["to"], e["attempt"], e["worker"], e["reason"]) for e in job["events"]],
        ),
    ]
    if job["result"] is not None:
        parts.append(returned(job["result"]))
    return "\n\n".join(parts)


def returned(result: Any) -> str:
    """What a job returned."""
    return "result\n" + harmless(json.dumps(result, ensure_ascii=False, indent=2))


def _iterations(goal: Mapping[str, Any] | None) -> str | None:
    if goal is None:
        return None
    last = goal["last_validation"]
    judged = "" if last is None else ", the last one passed" if last["passed"] else ", the last one did not pass"
    return f"{goal['iteration']} of {goal['max_iterations']}{judged}"


def cancelled(body: Mapping[str, Any]) -> str:
    words = {
        "done": "is cancelled; it will not run",
        "requested": "runs; its worker has been told to stop",
        "too_late": f"had ended as {body['status']}",
    }
    return f"{body['job_id']} {words[body['cancel']]}."


def explained(body: Mapping[str, Any]) -> str:
    facts = [
        ("runnable", "yes" if body["runnable"] else "no"),
        ("reason", body["reason"]),
        ("detail", body["detail"]),
        ("blocked by", body["blocked_by"]),
        ("since", moment(body["since"])),
    ]
    return pairs(facts)


def tailed(event: Mapping[str, Any]) -> str:
    """One event of a tail: what the agent said as it is, the rest as one line with its time."""
    data = event["data"]
    if event["event"] == "text":
        return harmless(data["text"])
    if event["event"] == "progress":
        whole = "" if data["total"] is None else f" of {data['total']}"
        said = f"{data['done']}{whole} {data['message']}"
    else:
        said = ": ".join(str(part) for part in (data["event"], data["reason"]) if part)
    return f"[{moment(event['at'])}] {cell(said, cut=None)}"
