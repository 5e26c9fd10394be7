"""What a command finds when it starts: its variables, its directory, its stdin."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dispatch.agents.clean import clean_text
from dispatch.agents.command.spec import CommandSpec
from dispatch.agents.goals.view import Goal
from dispatch.ports import Lease

# Given to every command when the worker has them; everything else by the allowlist only.
COMMON = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")
SLUG_CHARS = 40
DIRECTORY = re.compile(r"[a-z0-9-]+-(?P<row>[0-9]+)-[0-9a-f]{24}")


def environment(
    spec: CommandSpec,
    lease: Lease,
    *,
    key: str,
    reply: str | None,
    traceparent: str | None,
    worker: Mapping[str, str],
    always: Mapping[str, str],
    goal: Goal | None = None,
) -> dict[str, str]:
    """The command's variables, out of the worker's, the file's and the turn's. `key`: the idempotency key."""
    given = {name: worker[name] for name in (*COMMON, *spec.env_allow) if name in worker}
    own = {
        "AGENT": lease.agent_name,
        "ATTEMPT": str(lease.attempt),
        "DEADLINE": lease.deadline.isoformat() if lease.deadline else None,
        "IDEMPOTENCY_KEY": key,
        "JOB_ID": lease.job_id,
        "REPLY": None if reply is None else clean_text(reply),
        "SESSION_ID": lease.session_id,
        "TENANT": lease.tenant,
        "TURN_NUMBER": str(lease.turn_number),
    }
    if goal is not None:
        own |= {
            "GOAL_FEEDBACK": clean_text(goal.feedback),
            "GOAL_ITERATION": str(goal.iteration),
            "GOAL_MAX_ITERATIONS": str(goal.max_iterations),
        }
    set_for_turn = {f"FLEETSITE_{name}": value for name, value in own.items() if value is not None}
    if traceparent is not None:
        set_for_turn["TRACEPARENT"] = traceparent  # where the tools of traces look for it
    return {**given, **always, **spec.env_set, **set_for_turn}


def session_directory(root: Path, lease: Lease) -> Path:
    """Where the commands of this session work, made if it is missing, mode 0700.

    The name is safe on every file system: a readable part, the row's number, and a digest that two sessions never
    share, not even one that was deleted and begun anew under the same name. Its time is that of the latest turn.
    """
    identity = f"{lease.tenant}\0{lease.session_id}\0{lease.session_pk}"
    slug = re.sub(r"[^a-z0-9]+", "-", lease.session_id.lower())[:SLUG_CHARS].strip("-")
    path = root / f"{slug or 'session'}-{lease.session_pk}-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"
    root.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    os.utime(path)
    return path


def leave(directory: Path) -> None:
    """Remove a session's directory in which a turn left nothing; the next turn makes it anew."""
    with suppress(OSError):
        directory.rmdir()


def session_of(directory: Path) -> int | None:
    """The number of the row whose directory this is; None for what we did not make."""
    made = DIRECTORY.fullmatch(directory.name)
    return int(made["row"]) if made else None


def stdin_bytes(
    spec: CommandSpec,
    lease: Lease,
    *,
    key: str,
    checkpoint: Any,
    reply: str | None,
    state: Mapping[str, Any],
    goal: Goal | None = None,
) -> bytes:
    """What is to be read there: the task, or one JSON object of all that the turn knows, or nothing."""
    if spec.stdin == "task":
        return lease.task.encode("utf-8", "replace")
    if spec.stdin == "none":
        return b""
    whole = {
        "agent_name": lease.agent_name,
        "attempt": lease.attempt,
        "checkpoint": checkpoint,
        "deadline": lease.deadline.isoformat() if lease.deadline else None,
        "goal": goal.as_json() if goal is not None else None,
        "idempotency_key": key,
        "job_id": lease.job_id,
        "payload": lease.payload,
        "reply": reply,
        "session_id": lease.session_id,
        "state": state,
        "task": lease.task,
        "tenant": lease.tenant,
        "turn_number": lease.turn_number,
    }
    return json.dumps(whole, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
