-- What the cold transitions write for many rows at once. Portable between SQLite and Postgres.

-- name: promote
WITH found (found_session, next_head, new_status, new_desired, stops) AS (VALUES {rows})
UPDATE sessions
   SET head_seq = CAST(next_head AS bigint),
       status = new_status,
       desired = new_desired,
       stopped_at = CASE WHEN stops = 1 AND stopped_at IS NULL THEN %s ELSE stopped_at END,
       updated_at = %s
  FROM found
 WHERE id = found_session
