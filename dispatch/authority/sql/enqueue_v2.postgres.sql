-- Admission of one turn without parents, in one statement and one commit, with a plan that the session keeps.
-- Everything that it decides comes from the locked session row. Answers the item's id.
CREATE OR REPLACE FUNCTION dispatch_enqueue_v2(
  p_job_id text, p_tenant text, p_session_id text, p_session_metadata jsonb, p_background boolean,
  p_kind text, p_agent_name text, p_priority int, p_max_attempts int, p_on_worker_lost text,
  p_run_at timestamptz, p_deadline timestamptz, p_task text, p_payload jsonb, p_metadata jsonb,
  p_fingerprint jsonb, p_parent bigint, p_traceparent text)
RETURNS bigint LANGUAGE plpgsql SET plan_cache_mode = force_generic_plan SET jit = off AS $f$
DECLARE v_id bigint; v_state int;
BEGIN
  WITH s AS (
    INSERT INTO sessions AS s (tenant, session_id, metadata, state, background, status, desired, created_at, updated_at,
                               last_seq, head_seq, turn_number)
    VALUES (p_tenant, p_session_id, p_session_metadata, '{}', p_background, 'active', 'run',
            clock_timestamp(), clock_timestamp(), 1, 1, 0)
    ON CONFLICT (tenant, session_id) DO UPDATE
       SET last_seq = s.last_seq + 1, head_seq = coalesce(s.head_seq, s.last_seq + 1), updated_at = excluded.updated_at,
           metadata = CASE WHEN s.metadata = '{}' THEN excluded.metadata ELSE s.metadata END,
           status = CASE WHEN s.status IN ('idle', 'failed', 'cancelled') THEN 'active' ELSE s.status END
    RETURNING id, last_seq, CASE WHEN head_seq <> last_seq THEN 0 WHEN desired = 'pause' THEN 4
                                 WHEN p_run_at > clock_timestamp() THEN 2 ELSE 1 END AS qstate
  ), w AS (
    INSERT INTO work_items (job_id, tenant, session_pk, session_seq, kind, agent_name, priority, status, attempt,
                            max_attempts, on_worker_lost, epoch, run_at, due_at, deadline, task, payload, metadata,
                            fingerprint, checkpoint_id, parent_item_id, suspended_for, created_at, cancel_code,
                            cancel_reason, traceparent)
    SELECT p_job_id, p_tenant, s.id, s.last_seq, p_kind, p_agent_name, p_priority, 'ready', 0,
           p_max_attempts, p_on_worker_lost, 0, p_run_at, p_run_at, p_deadline, p_task, p_payload,
           p_metadata, p_fingerprint, '', p_parent, '', clock_timestamp(), '', '', p_traceparent FROM s
    RETURNING id
  ), q AS (
    INSERT INTO agent_dispatch_queue (work_item_id, job_id, tenant, kind, agent_name, state, rank, priority, due_at,
                                      deadline, enqueued_at)
    SELECT w.id, p_job_id, p_tenant, p_kind, p_agent_name, s.qstate,
           clock_timestamp() + p_priority * interval '5 min', p_priority, p_run_at, p_deadline, clock_timestamp()
    FROM w, s
  ), e AS (
    INSERT INTO work_item_events (work_item_id, at, event, from_status, to_status, attempt, worker, epoch, reason)
    SELECT id, clock_timestamp(), 'submitted', '', 'ready', 0, '', 0, '' FROM w
  )
  SELECT w.id, s.qstate INTO v_id, v_state FROM w, s;
  -- a NOTIFY serializes commits, so only for a turn that somebody may claim now
  IF v_state = 1 THEN PERFORM pg_notify('fleetsite_turns', ''); END IF;
  RETURN v_id;
END $f$;
