-- One round trip of a consumer that holds a broker's deliveries: settle what ended, claim by job id, say what became free.
--
-- Takes what dispatch_step_v2 takes and answers its rows, and:
--   'seen'   a delivery that was not leased, with what decides why (in `since` the moment of the look, in `code` whether
--            a gate is shut); no row: nothing stands behind the delivery
--   'freed'  a head of the settled sessions that is claimable, was not claimed here and has no envelope
-- p_sent, p_sent_epoch: items whose envelopes the broker has confirmed; one that was claimed since is not marked.
CREATE OR REPLACE FUNCTION dispatch_deliver_v1(
  p_owner text, p_ttl double precision, p_settle json, p_want int, p_agents text[], p_kinds text[],
  p_jobs text[], p_tenants text[], p_sent bigint[], p_sent_epoch int[])
RETURNS TABLE (what text, id bigint, epoch int, status text, code text, job_id text, tenant text,
               session_pk bigint, session_id text, session_seq bigint, turn_number int, kind text, agent_name text,
               attempt int, max_attempts int, on_worker_lost text, deadline timestamptz, task text, payload text,
               state text, checkpoint text, suspended_for text, traceparent text,
               head_seq bigint, desired text, due_at timestamptz, priority int, since timestamptz)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $f$
#variable_conflict use_column
DECLARE
  v_ids bigint[] := '{}'; v_session bigint[] := '{}';
BEGIN
  IF p_want > 0 AND EXISTS (SELECT 1 FROM claim_limits x WHERE x.scope = 'tenant' OR x.name = ANY (p_agents)) THEN
    RETURN QUERY
    SELECT 'limited', NULL::bigint, NULL::int, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::text,
           NULL::bigint, NULL::int, NULL::text, NULL::text, NULL::int, NULL::int, NULL::text, NULL::timestamptz, NULL::text,
           NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
           NULL::bigint, NULL::text, NULL::timestamptz, NULL::int, NULL::timestamptz;
    RETURN;
  END IF;
  IF p_settle IS NOT NULL THEN
    SELECT array_agg(i.session) INTO v_session FROM json_to_recordset(p_settle) AS i(session bigint);
    RETURN QUERY
    SELECT x.*, NULL::bigint, NULL::text, NULL::timestamptz, NULL::int, NULL::timestamptz
    FROM dispatch_step_v2(p_owner, p_ttl, p_settle, 0, '', '{}', '{}') x;
  END IF;
  IF p_want > 0 THEN
    v_ids := ARRAY(
      SELECT q.work_item_id
      FROM unnest(p_jobs, p_tenants) WITH ORDINALITY j(job_id, tenant, n)
      JOIN work_items w ON w.job_id = j.job_id AND w.tenant = j.tenant
      JOIN sessions s ON s.id = w.session_pk AND s.head_seq = w.session_seq AND s.desired <> 'pause'
      JOIN agent_dispatch_queue q ON q.work_item_id = w.id AND q.state = 1
      WHERE w.status = 'ready' AND (w.due_at IS NULL OR w.due_at <= clock_timestamp())
        AND (w.deadline IS NULL OR w.deadline > clock_timestamp())
        AND w.agent_name = ANY (p_agents) AND w.kind = ANY (p_kinds)
        AND NOT EXISTS (SELECT 1 FROM claim_gates g
                        WHERE g.scope = 'fleet' OR g.scope = 'agent' AND g.name = w.agent_name
                           OR g.scope = 'kind' AND g.name = w.kind OR g.scope = 'tenant' AND g.name = w.tenant)
      ORDER BY j.n LIMIT p_want FOR UPDATE OF q SKIP LOCKED);
    IF cardinality(v_ids) < p_want AND cardinality(v_session) > 0 THEN
      -- a slot is left: heads that were freed a moment ago need no envelope for it
      v_ids := v_ids || ARRAY(
        SELECT q.work_item_id
        FROM sessions s
        JOIN work_items w ON w.session_pk = s.id AND w.session_seq = s.head_seq
        JOIN agent_dispatch_queue q ON q.work_item_id = w.id AND q.state = 1
        WHERE s.id = ANY (v_session) AND s.desired <> 'pause' AND w.id <> ALL (v_ids)
          AND w.status = 'ready' AND (w.due_at IS NULL OR w.due_at <= clock_timestamp())
          AND (w.deadline IS NULL OR w.deadline > clock_timestamp())
          AND w.agent_name = ANY (p_agents) AND w.kind = ANY (p_kinds)
        AND NOT EXISTS (SELECT 1 FROM claim_gates g
                        WHERE g.scope = 'fleet' OR g.scope = 'agent' AND g.name = w.agent_name
                           OR g.scope = 'kind' AND g.name = w.kind OR g.scope = 'tenant' AND g.name = w.tenant)
        ORDER BY q.rank, q.work_item_id LIMIT p_want - cardinality(v_ids) FOR UPDATE OF q SKIP LOCKED);
    END IF;
  END IF;
  IF v_ids <> '{}' THEN
    UPDATE agent_dispatch_queue q SET state = 3, claimed_at = clock_timestamp(), published_at = NULL
    WHERE q.work_item_id = ANY (v_ids);
    RETURN QUERY
    WITH w AS (
      UPDATE work_items w
         SET status = 'running', epoch = w.epoch + 1, attempt = w.attempt + 1, owner = p_owner,
             lease_expires_at = clock_timestamp() + p_ttl * interval '1 s', started_at = clock_timestamp(),
             stopped_at = NULL, cancel_seen_at = NULL
      WHERE w.id = ANY (v_ids) AND w.status = 'ready' AND (w.due_at IS NULL OR w.due_at <= clock_timestamp())
        -- a queue row is a hint: what is not the head of a session that may run is put right, not run
        AND w.session_seq = (SELECT s.head_seq FROM sessions s WHERE s.id = w.session_pk AND s.desired <> 'pause')
      RETURNING w.*
    ), e AS (
      INSERT INTO work_item_events (work_item_id, at, event, from_status, to_status, attempt, worker, epoch, reason)
      SELECT w.id, clock_timestamp(), 'running', 'ready', 'running', w.attempt, p_owner, w.epoch, '' FROM w
    )
    SELECT 'claimed', w.id, w.epoch, w.status::text, NULL::text, w.job_id::text, w.tenant::text, w.session_pk,
           s.session_id::text, w.session_seq, s.turn_number + 1, w.kind::text, w.agent_name::text, w.attempt,
           w.max_attempts, w.on_worker_lost::text, w.deadline, w.task, w.payload::text, s.state::text,
           w.checkpoint::text, w.suspended_for::text, w.traceparent::text,
           NULL::bigint, NULL::text, NULL::timestamptz, NULL::int, NULL::timestamptz
    FROM w JOIN sessions s ON s.id = w.session_pk ORDER BY array_position(v_ids, w.id);
    -- what was picked and is not ready has a stale row: it is told, and put right by its own transaction
    RETURN QUERY
    SELECT 'stale', x.id, NULL::int, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
           NULL::text, NULL::bigint, NULL::int, NULL::text, NULL::text, NULL::int, NULL::int, NULL::text,
           NULL::timestamptz, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
           NULL::bigint, NULL::text, NULL::timestamptz, NULL::int, NULL::timestamptz
    FROM unnest(v_ids) x(id)
    WHERE NOT EXISTS (SELECT 1 FROM work_items w WHERE w.id = x.id AND w.owner = p_owner AND w.status = 'running');
  END IF;
  RETURN QUERY
  SELECT 'seen', w.id, w.epoch, w.status::text,
         CASE WHEN EXISTS (SELECT 1 FROM claim_gates g
                           WHERE g.scope = 'fleet' OR g.scope = 'agent' AND g.name = w.agent_name
                              OR g.scope = 'kind' AND g.name = w.kind OR g.scope = 'tenant' AND g.name = w.tenant)
              THEN 'shut' END,
         w.job_id::text, w.tenant::text, w.session_pk, NULL::text,
         w.session_seq, NULL::int, w.kind::text, w.agent_name::text, w.attempt, NULL::int, NULL::text, w.deadline,
         NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
         s.head_seq, s.desired::text, w.due_at, w.priority::int, clock_timestamp()
  FROM unnest(p_jobs) j(job_id)
  JOIN work_items w ON w.job_id = j.job_id AND w.id <> ALL (v_ids)
  JOIN sessions s ON s.id = w.session_pk;
  RETURN QUERY
  SELECT 'freed', w.id, w.epoch, w.status::text, NULL::text, w.job_id::text, w.tenant::text, s.id, s.session_id::text,
         w.session_seq, NULL::int, w.kind::text, w.agent_name::text, w.attempt, NULL::int, NULL::text, w.deadline,
         NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
         s.head_seq, s.desired::text, w.due_at, w.priority::int, w.created_at
  FROM sessions s
  JOIN work_items w ON w.session_pk = s.id AND w.session_seq = s.head_seq
  JOIN agent_dispatch_queue q ON q.work_item_id = w.id AND q.state = 1 AND q.published_at IS NULL
  WHERE s.id = ANY (v_session) AND w.id <> ALL (v_ids);
  IF cardinality(p_sent) > 0 THEN
    -- last, and never waiting for a row: sessions come before queue rows in the order that everybody keeps
    UPDATE agent_dispatch_queue q SET published_at = clock_timestamp()
    WHERE q.work_item_id IN (
      SELECT x.work_item_id FROM unnest(p_sent, p_sent_epoch) u(id, epoch)
      JOIN work_items w ON w.id = u.id AND w.epoch = u.epoch
      JOIN agent_dispatch_queue x ON x.work_item_id = u.id AND x.state = 1
      FOR UPDATE OF x SKIP LOCKED);
  END IF;
END $f$;
