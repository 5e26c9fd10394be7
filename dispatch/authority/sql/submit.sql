-- Admission. Everything that it decides comes from the session's own row, which the upsert locks.

-- name: take_place
INSERT INTO sessions (tenant, session_id, metadata, state, background, status, desired, created_at, updated_at, last_seq,
                      head_seq, turn_number)
VALUES (%s, %s, %s, '{}', %s, 'active', 'run', %s, %s, %s, 1, 0)
ON CONFLICT (tenant, session_id) DO UPDATE
   SET last_seq = sessions.last_seq + excluded.last_seq,
       head_seq = coalesce(sessions.head_seq, sessions.last_seq + 1),
       updated_at = excluded.updated_at,
       metadata = CASE WHEN sessions.metadata = '{}' THEN excluded.metadata ELSE sessions.metadata END,
       status = CASE WHEN sessions.status IN ('idle', 'failed', 'cancelled') THEN 'active' ELSE sessions.status END
RETURNING id, last_seq, head_seq, desired

-- name: add_item
INSERT INTO work_items (job_id, tenant, session_pk, session_seq, kind, agent_name, priority, status, attempt,
                        max_attempts, on_worker_lost, epoch, run_at, due_at, deadline, task, payload, metadata, goal,
                        fingerprint, checkpoint_id, parent_item_id, suspended_for, created_at, cancel_code,
                        cancel_reason, traceparent)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 0, %s, %s, 0, %s, %s, %s, %s, %s, %s, %s, %s, '', %s, '', %s, '', '', %s)
RETURNING id

-- name: add_event
INSERT INTO work_item_events (work_item_id, at, event, from_status, to_status, attempt, worker, epoch, reason)
VALUES (%s, %s, 'submitted', '', %s, 0, '', 0, '')
