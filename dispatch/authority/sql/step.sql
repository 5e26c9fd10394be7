-- The hot path: settle what ended, claim what is free. Portable between SQLite and Postgres.
-- The caller has locked the sessions of what it settles (a statement of its own) and then the queue rows.
-- {rows} stands for as many rows of parameters as a step has: it costs the same few statements for one turn or twenty.

-- name: settle_final
WITH ended (ended_id, ended_epoch, ended_status, really) AS (VALUES {rows})
UPDATE work_items
   SET status = ended_status, finished_at = %s, due_at = NULL, owner = NULL, lease_expires_at = NULL,
       stopped_at = CASE WHEN really = 1 AND (ended_status = 'cancelled' OR cancel_requested_at IS NOT NULL)
                         THEN %s ELSE stopped_at END
  FROM ended
 WHERE id = ended_id AND epoch = ended_epoch AND owner = %s
RETURNING id, epoch, session_pk, session_seq, attempt, status, started_at, priority, cancel_requested_at, cancel_code,
          cancel_reason

-- name: settle_open
UPDATE work_items
   SET status = CASE WHEN cancel_requested_at IS NOT NULL THEN 'cancelled' ELSE %s END,
       attempt = attempt - %s,
       finished_at = CASE WHEN cancel_requested_at IS NOT NULL THEN %s END,
       stopped_at = CASE WHEN %s = 1 AND cancel_requested_at IS NOT NULL THEN %s ELSE stopped_at END,
       due_at = %s,
       suspended_for = CASE WHEN %s <> '' THEN %s ELSE suspended_for END,
       owner = NULL,
       lease_expires_at = NULL
 WHERE id = %s AND epoch = %s AND owner = %s
RETURNING id, epoch, session_pk, session_seq, attempt, status, started_at, priority, cancel_requested_at, cancel_code,
          cancel_reason

-- name: next_turns
WITH ended (ended_session, ended_seq) AS (VALUES {rows})
SELECT session_pk, id, session_seq, status, due_at, priority
  FROM ended
  JOIN work_items ON id = (
       SELECT following.id FROM work_items AS following
        WHERE following.session_pk = ended_session AND following.session_seq > ended_seq
          AND following.status IN ('submitted', 'ready')
        ORDER BY following.session_seq LIMIT 1)

-- name: settle_sessions_final
WITH ended (ended_session, next_seq, idle, seer, really) AS (VALUES {rows})
UPDATE sessions
   SET turn_number = turn_number + 1,
       head_seq = CAST(next_seq AS bigint),
       updated_at = %s,
       status = CASE WHEN desired = 'pause' THEN 'paused' WHEN next_seq IS NOT NULL THEN 'active'
                     WHEN desired = 'kill' THEN 'cancelled' ELSE idle END,
       stopped_at = CASE WHEN really = 1 AND desired <> 'run' AND stopped_at IS NULL THEN %s ELSE stopped_at END,
       seen_by = CASE WHEN desired <> 'run' AND seen_at IS NULL THEN seer ELSE seen_by END,
       seen_at = CASE WHEN desired <> 'run' AND seen_at IS NULL THEN %s ELSE seen_at END,
       desired = CASE WHEN desired = 'kill' THEN 'run' ELSE desired END
  FROM ended
 WHERE id = ended_session
RETURNING id, turn_number, desired

-- name: settle_session_open
UPDATE sessions
   SET updated_at = %s,
       status = CASE WHEN desired = 'pause' THEN 'paused' WHEN desired = 'kill' THEN status
                     WHEN %s = 1 THEN 'needs_input' ELSE 'active' END,
       stopped_at = CASE WHEN %s = 1 AND desired = 'pause' AND stopped_at IS NULL THEN %s ELSE stopped_at END,
       seen_by = CASE WHEN desired <> 'run' AND seen_at IS NULL THEN %s ELSE seen_by END,
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

-- name: waited_for
SELECT DISTINCT parent_id FROM work_item_dependencies WHERE parent_id IN (VALUES {rows})

-- name: holds
SELECT scope, name, 0 FROM claim_gates UNION ALL SELECT scope, name, 1 FROM claim_limits

-- name: claim_items
UPDATE work_items
   SET status = 'running', epoch = epoch + 1, attempt = attempt + 1, owner = %s, lease_expires_at = %s,
       started_at = %s, stopped_at = NULL, cancel_seen_at = NULL
 WHERE id IN (VALUES {rows}) AND status = 'ready' AND (due_at IS NULL OR due_at <= %s)
   -- a queue row is a hint: what is not the head of a session that may run is put right, not run
   AND session_seq = (SELECT head_seq FROM sessions WHERE sessions.id = session_pk AND desired <> 'pause')
RETURNING id, epoch, job_id, tenant, session_pk, session_seq, kind, agent_name, attempt, max_attempts,
          on_worker_lost, deadline, task, payload, checkpoint, suspended_for, traceparent,
          (SELECT sessions.session_id FROM sessions WHERE sessions.id = work_items.session_pk),
          (SELECT sessions.turn_number FROM sessions WHERE sessions.id = work_items.session_pk),
          (SELECT sessions.state FROM sessions WHERE sessions.id = work_items.session_pk)
