-- The hot path: settle what ended, claim what is free. Portable between SQLite and Postgres.
-- The caller has locked the sessions of what it settles (a statement of its own) and then the queue rows.

-- name: settle_item
UPDATE work_items
   SET status = CASE WHEN %s = 1 THEN %s WHEN cancel_requested_at IS NOT NULL THEN 'cancelled' ELSE %s END,
       attempt = attempt - %s,
       finished_at = CASE WHEN %s = 1 OR cancel_requested_at IS NOT NULL THEN %s END,
       due_at = %s,
       suspended_for = CASE WHEN %s <> '' THEN %s ELSE suspended_for END,
       owner = NULL,
       lease_expires_at = NULL
 WHERE id = %s AND epoch = %s AND owner = %s
RETURNING session_pk, session_seq, attempt, status, started_at, cancel_requested_at, cancel_code, cancel_reason

-- name: next_turn
SELECT id, session_seq, status, due_at, priority FROM work_items
 WHERE session_pk = %s AND session_seq > %s AND status IN ('submitted', 'ready')
 ORDER BY session_seq LIMIT 1

-- name: settle_session_final
UPDATE sessions
   SET turn_number = turn_number + 1,
       head_seq = %s,
       updated_at = %s,
       status = CASE WHEN desired = 'pause' THEN 'paused' WHEN %s = 1 THEN 'active'
                     WHEN desired = 'kill' THEN 'cancelled' ELSE %s END,
       stopped_at = CASE WHEN desired <> 'run' AND stopped_at IS NULL THEN %s ELSE stopped_at END,
       seen_at = CASE WHEN desired <> 'run' AND seen_at IS NULL THEN %s ELSE seen_at END,
       desired = CASE WHEN desired = 'kill' THEN 'run' ELSE desired END
 WHERE id = %s
RETURNING turn_number, desired

-- name: settle_session_open
UPDATE sessions
   SET updated_at = %s,
       status = CASE WHEN desired = 'pause' THEN 'paused' WHEN desired = 'kill' THEN status
                     WHEN %s = 1 THEN 'needs_input' ELSE 'active' END,
       stopped_at = CASE WHEN desired = 'pause' AND stopped_at IS NULL THEN %s ELSE stopped_at END,
       seen_at = CASE WHEN desired <> 'run' AND seen_at IS NULL THEN %s ELSE seen_at END
 WHERE id = %s
RETURNING turn_number + 1, desired

-- name: session_state
UPDATE sessions SET state = %s WHERE id = %s

-- name: add_turn
INSERT INTO turns (session_pk, turn_number, epoch, work_item_id, status, attempt, started_at, finished_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)

-- name: add_outcome
INSERT INTO outcomes (work_item_id, epoch, status, result, error_code, error_message, created_at)
VALUES (%s, %s, %s, %s, %s, %s, %s)

-- name: add_event
INSERT INTO work_item_events (work_item_id, at, event, from_status, to_status, attempt, worker, epoch, reason)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: count_outcome
INSERT INTO turn_counters (outcome, shard, count) VALUES (%s, 0, %s)
ON CONFLICT (outcome, shard) DO UPDATE SET count = turn_counters.count + excluded.count

-- name: claim_item
UPDATE work_items
   SET status = 'running', epoch = epoch + 1, attempt = attempt + 1, owner = %s, lease_expires_at = %s,
       started_at = %s, stopped_at = NULL, cancel_seen_at = NULL
 WHERE id = %s AND status = 'ready'
RETURNING id, epoch, job_id, tenant, session_pk, session_seq, kind, agent_name, attempt, max_attempts,
          on_worker_lost, deadline, task, payload, checkpoint, suspended_for

-- name: session_for_claim
SELECT session_id, turn_number, state FROM sessions WHERE id = %s
