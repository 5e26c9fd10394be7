"""Fills a Postgres store with many sessions and jobs, by SQL: `python -m benchmarks.scale_load SESSIONS READY`.

The last line of output is a JSON object with the seconds that it took.
"""

from __future__ import annotations

import json
import sys
import time

import django

django.setup()

from django.db import connection  # noqa: E402  (Django's settings come first)

TENANTS = 20
DOMAINS = 40
# session i has one ended job, i; the newest `ready` of them have a second one that waits in the queue
STATEMENTS = (
    """
INSERT INTO sessions (id, tenant, session_id, status, metadata, state, background, desired, desired_by, desired_reason,
                      last_seq, head_seq, turn_number, created_at, updated_at)
SELECT i, 'tenant-' || i %% %(tenants)s, 'session-' || lpad(i::text, 8, '0'),
       CASE WHEN i > %(idle)s THEN 'active' WHEN i %% 50 = 0 THEN 'failed' ELSE 'idle' END,
       jsonb_build_object('domain', 'domain-' || i %% %(domains)s), '{"turns": 1}', i %% 10 = 0, 'run', '', '',
       CASE WHEN i > %(idle)s THEN 2 ELSE 1 END, CASE WHEN i > %(idle)s THEN 2 END, 1,
       now() - (%(sessions)s - i) * interval '10 s', now() - (%(sessions)s - i) * interval '10 s'
FROM generate_series(1, %(sessions)s) i
""",
    """
INSERT INTO work_items (id, job_id, tenant, session_pk, session_seq, kind, agent_name, priority, status, attempt,
                        max_attempts, on_worker_lost, epoch, task, payload, metadata, checkpoint_id, suspended_for,
                        created_at, started_at, finished_at, cancel_code, cancel_reason)
SELECT i, 'orch-' || lpad(i::text, 32, '0'), s.tenant, s.id, 1, 'orchestrator_task', 'noop', 2,
       CASE WHEN i %% 50 = 0 THEN 'failed' ELSE 'succeeded' END, 1, 3, 'retry', 1, 'measure', '{}', '{}', '', '',
       s.created_at, s.created_at, s.created_at, '', ''
FROM generate_series(1, %(sessions)s) i JOIN sessions s ON s.id = i
""",
    """
INSERT INTO outcomes (work_item_id, epoch, status, result, error_code, error_message, created_at)
SELECT id, 1, status, '{"answer": 42}', CASE status WHEN 'failed' THEN 'agent_error' ELSE '' END, '', finished_at
FROM work_items
""",
    """
INSERT INTO turns (session_pk, turn_number, epoch, work_item_id, status, attempt, started_at, finished_at)
SELECT session_pk, 1, 1, id, status, 1, started_at, finished_at FROM work_items
""",
    """
INSERT INTO work_item_events (work_item_id, at, event, from_status, to_status, attempt, worker, epoch, reason)
SELECT w.id, w.finished_at, e.event, e.was, CASE e.event WHEN 'ended' THEN w.status ELSE e.event END, 1, '', 1, ''
FROM work_items w, (VALUES ('submitted', ''), ('running', 'ready'), ('ended', 'running')) e(event, was)
""",
    """
INSERT INTO work_items (id, job_id, tenant, session_pk, session_seq, kind, agent_name, priority, status, attempt,
                        max_attempts, on_worker_lost, epoch, task, payload, metadata, checkpoint_id, suspended_for,
                        created_at, cancel_code, cancel_reason)
SELECT %(sessions)s + i, 'orch-' || lpad((%(sessions)s + i)::text, 32, '0'), s.tenant, s.id, 2, 'orchestrator_task',
       'noop', 2, 'ready', 0, 3, 'retry', 0, 'measure', '{}', '{}', '', '', clock_timestamp(), '', ''
FROM generate_series(1, %(ready)s) i JOIN sessions s ON s.id = %(idle)s + i
""",
    """
INSERT INTO work_item_events (work_item_id, at, event, to_status)
SELECT id, created_at, 'submitted', 'ready' FROM work_items WHERE id > %(sessions)s
""",
    # as a repair does: the admission bound counts these, and refuses none
    "SELECT set_config('fleetsite.readmit', 'on', false)",
    """
INSERT INTO agent_dispatch_queue (work_item_id, job_id, tenant, kind, agent_name, state, rank, priority, enqueued_at)
SELECT id, job_id, tenant, kind, agent_name, 1, created_at + interval '10 min', 2, created_at
FROM work_items WHERE id > %(sessions)s
""",
    "SELECT set_config('fleetsite.readmit', 'off', false)",
    "SELECT setval(pg_get_serial_sequence('sessions', 'id'), %(sessions)s)",
    "SELECT setval(pg_get_serial_sequence('work_items', 'id'), %(sessions)s + %(ready)s)",
    "VACUUM ANALYZE",
)


def load(*, sessions: int, ready: int) -> float:
    """Fill an empty store; answers the seconds that it took."""
    began = time.monotonic()
    values = {
        "sessions": sessions,
        "ready": ready,
        "idle": sessions - ready,
        "tenants": TENANTS,
        "domains": DOMAINS,
    }
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")
        for statement in STATEMENTS:
            cursor.execute(statement, values if "%(" in statement else None)
        cursor.execute("RESET synchronous_commit")
    return time.monotonic() - began


if __name__ == "__main__":
    sessions, ready = map(int, sys.argv[1:3])
    print(json.dumps({"sessions": sessions, "ready": ready, "load_s": round(load(sessions=sessions, ready=ready))}))
