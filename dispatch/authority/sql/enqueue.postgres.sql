-- Admission of turns without parents on Postgres. Everything that it decides comes from the locked session rows.

-- name: enqueue
SELECT dispatch_enqueue_v2(
  %(job_id)s::text, %(tenant)s::text, %(session_id)s::text, %(session_metadata)s::jsonb, %(background)s, %(kind)s::text,
  %(agent_name)s::text, %(priority)s::int, %(max_attempts)s::int, %(on_worker_lost)s::text, %(run_at)s::timestamptz,
  %(deadline)s::timestamptz, %(task)s::text, %(payload)s::jsonb, %(metadata)s::jsonb, %(fingerprint)s::jsonb,
  %(parent)s::bigint, %(traceparent)s::text)

-- one statement and one commit for all, left to a custom plan: inside a function with a generic one it is slower
-- name: enqueue_many
WITH i AS (
  SELECT * FROM unnest(%(job_id)s::text[], %(tenant)s::text[], %(session_id)s::text[], %(session_metadata)s::jsonb[],
                       %(background)s::boolean[], %(kind)s::text[], %(agent_name)s::text[], %(priority)s::smallint[],
                       %(max_attempts)s::int[], %(on_worker_lost)s::text[], %(run_at)s::timestamptz[],
                       %(deadline)s::timestamptz[], %(task)s::text[], %(payload)s::jsonb[], %(metadata)s::jsonb[],
                       %(fingerprint)s::jsonb[], %(parent)s::bigint[], %(traceparent)s::text[])
    WITH ORDINALITY AS t(job_id, tenant, session_id, session_metadata, background, kind, agent_name, priority,
                         max_attempts, on_worker_lost, run_at, deadline, task, payload, metadata, fingerprint, parent, traceparent, n)
), s AS (
  INSERT INTO sessions AS s (tenant, session_id, metadata, state, background, status, desired, created_at, updated_at,
                             last_seq, head_seq, turn_number)
  SELECT tenant, session_id, (array_agg(session_metadata ORDER BY n))[1], '{}', (array_agg(background ORDER BY n))[1],
         'active', 'run', clock_timestamp(), clock_timestamp(), count(*), 1, 0
  FROM i GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (tenant, session_id) DO UPDATE
     SET last_seq = s.last_seq + excluded.last_seq, head_seq = coalesce(s.head_seq, s.last_seq + 1),
         updated_at = excluded.updated_at,
         metadata = CASE WHEN s.metadata = '{}' THEN excluded.metadata ELSE s.metadata END,
         status = CASE WHEN s.status IN ('idle', 'failed', 'cancelled') THEN 'active' ELSE s.status END
  RETURNING id, tenant, session_id, last_seq, head_seq, desired
), p AS (
  SELECT i.*, s.id AS session_pk, s.head_seq, s.desired,
         s.last_seq - count(*) OVER (PARTITION BY s.id) + row_number() OVER (PARTITION BY s.id ORDER BY i.n) AS seq
  FROM i JOIN s USING (tenant, session_id)
), w AS (
  INSERT INTO work_items (job_id, tenant, session_pk, session_seq, kind, agent_name, priority, status, attempt,
                          max_attempts, on_worker_lost, epoch, run_at, due_at, deadline, task, payload, metadata,
                          fingerprint, checkpoint_id, parent_item_id, suspended_for, created_at, cancel_code,
                          cancel_reason, traceparent)
  SELECT job_id, tenant, session_pk, seq, kind, agent_name, priority, 'ready', 0, max_attempts, on_worker_lost, 0, run_at,
         run_at, deadline, task, payload, metadata, fingerprint, '', parent, '', clock_timestamp(), '', '', traceparent
  FROM p ORDER BY n
  RETURNING id, job_id, session_pk, session_seq, tenant, kind, agent_name, priority, run_at, deadline
), q AS (
  INSERT INTO agent_dispatch_queue (work_item_id, job_id, tenant, kind, agent_name, state, rank, priority, due_at,
                                    deadline, enqueued_at)
  SELECT w.id, w.job_id, w.tenant, w.kind, w.agent_name,
         CASE WHEN w.session_seq <> s.head_seq THEN 0 WHEN s.desired = 'pause' THEN 4
              WHEN w.run_at > clock_timestamp() THEN 2 ELSE 1 END,
         clock_timestamp() + w.priority * interval '5 min', w.priority, w.run_at, w.deadline, clock_timestamp()
  FROM w JOIN s ON s.id = w.session_pk
  RETURNING state
), e AS (
  INSERT INTO work_item_events (work_item_id, at, event, from_status, to_status, attempt, worker, epoch, reason)
  SELECT id, clock_timestamp(), 'submitted', '', 'ready', 0, '', 0, '' FROM w
), wake AS (
  SELECT CASE WHEN EXISTS (SELECT 1 FROM q WHERE state = 1) THEN pg_notify('fleetsite_turns', '') END AS told
)
SELECT w.id, w.job_id, wake.told FROM w, wake
