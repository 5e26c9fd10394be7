-- One round trip of a consumer: settle what ended, claim what is free, in one transaction with a snapshot per statement.
--
-- p_verb: succeeded | failed | cancelled | dead_letter, or retry | snooze | handback, which return the turn to the queue.
-- A suspended turn asks a person or waits for children and is settled by the portable statements of step.sql.
-- A turn of the batch that is not answered by a 'settled' row has lost its fence.
-- Lanes are (agent, kind) pairs that the caller serves; what claim_gates shuts is left out.
-- Where a limit may concern what the caller serves nothing is done but to say so in a 'limited' row: caps and buckets
-- are counted by the portable statements.
--
-- p_settle: [{"id", "session", "epoch", "verb", "result", "state", "delay", "code", "message"}, …], null where nothing is said.
CREATE OR REPLACE FUNCTION dispatch_step_v2(
  p_owner text, p_ttl double precision, p_settle json, p_want int, p_cursor text, p_agents text[], p_kinds text[])
RETURNS TABLE (what text, id bigint, epoch int, status text, code text, job_id text, tenant text,
               session_pk bigint, session_id text, session_seq bigint, turn_number int, kind text, agent_name text,
               attempt int, max_attempts int, on_worker_lost text, deadline timestamptz, task text, payload text,
               state text, checkpoint text, suspended_for text)
LANGUAGE plpgsql
SET plan_cache_mode = force_generic_plan SET jit = off
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $f$
#variable_conflict use_column
DECLARE
  v_tenants text[]; v_tenant text; v_ids bigint[] := '{}'; v_got bigint[]; v_share int; v_left int; v_place int := 0;
  v_a text[]; v_k text[]; v_promoted bigint[] := '{}'; v_id bigint[]; v_session bigint[]; v_epoch int[];
  v_verb text[]; v_result jsonb[]; v_state jsonb[]; v_delay double precision[]; v_code text[]; v_message text[];
BEGIN
  IF p_want > 0 AND EXISTS (SELECT 1 FROM claim_limits x WHERE x.scope = 'tenant' OR x.name = ANY (p_agents)) THEN
    RETURN QUERY
    SELECT 'limited', NULL::bigint, NULL::int, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::text,
           NULL::bigint, NULL::int, NULL::text, NULL::text, NULL::int, NULL::int, NULL::text, NULL::timestamptz, NULL::text,
           NULL::text, NULL::text, NULL::text, NULL::text;
    RETURN;
  END IF;
  IF p_settle IS NOT NULL THEN
    -- arrays, whose length the planner takes for small: for a set of records it would read whole indexes
    SELECT array_agg(i.id), array_agg(i.session), array_agg(i.epoch), array_agg(i.verb), array_agg(i.result),
           array_agg(i.state), array_agg(i.delay), array_agg(i.code), array_agg(i.message)
    INTO v_id, v_session, v_epoch, v_verb, v_result, v_state, v_delay, v_code, v_message
    FROM json_to_recordset(p_settle)
      AS i(id bigint, session bigint, epoch int, verb text, result jsonb, state jsonb, delay double precision, code text,
           message text);
    -- a statement of its own: the next one needs a snapshot taken after these locks are held
    PERFORM 1 FROM sessions s WHERE s.id = ANY (v_session) ORDER BY s.tenant, s.session_id FOR NO KEY UPDATE;
    PERFORM 1 FROM agent_dispatch_queue q WHERE q.work_item_id = ANY (v_id) ORDER BY q.work_item_id FOR UPDATE;
    RETURN QUERY
    WITH i AS (
      SELECT * FROM unnest(v_id, v_epoch, v_verb, v_result, v_state, v_delay, v_code, v_message)
        AS t(id, epoch, verb, result, new_state, delay, code, message)
    ), d AS (
      UPDATE work_items w
         SET status = CASE WHEN i.verb NOT IN ('retry', 'snooze', 'handback') THEN i.verb
                           WHEN w.cancel_requested_at IS NOT NULL THEN 'cancelled' ELSE 'ready' END,
             attempt = w.attempt - (i.verb IN ('snooze', 'handback'))::int,
             finished_at = CASE WHEN i.verb NOT IN ('retry', 'snooze', 'handback') OR w.cancel_requested_at IS NOT NULL
                                THEN clock_timestamp() END,
             due_at = CASE WHEN i.delay > 0 THEN clock_timestamp() + i.delay * interval '1 s' END,
             owner = NULL, lease_expires_at = NULL
      FROM i WHERE w.id = i.id AND w.epoch = i.epoch AND w.owner = p_owner
      RETURNING w.id, w.session_pk, w.session_seq, w.attempt, w.epoch, w.started_at, w.status, w.due_at, w.priority,
                w.finished_at IS NOT NULL AS fin, i.verb, i.result, i.new_state, i.delay > 0 AS later,
                CASE WHEN w.status = 'cancelled' AND w.cancel_requested_at IS NOT NULL
                     THEN coalesce(nullif(w.cancel_code, ''), i.code, 'cancelled') ELSE i.code END AS code,
                CASE WHEN w.status = 'cancelled' AND w.cancel_requested_at IS NOT NULL
                     THEN coalesce(nullif(w.cancel_reason, ''), i.message, '') ELSE i.message END AS message
    ), n AS MATERIALIZED (
      SELECT d.*, x.id AS next_id, x.session_seq AS next_seq, x.status AS next_status, x.due_at AS next_due
      FROM d LEFT JOIN LATERAL (
        SELECT x.id, x.session_seq, x.status, x.due_at FROM work_items x
        WHERE d.fin AND x.session_pk = d.session_pk AND x.session_seq > d.session_seq
          AND x.status IN ('submitted', 'ready')
        ORDER BY x.session_seq LIMIT 1) x ON true
    ), s AS (
      UPDATE sessions s
         SET state = CASE WHEN n.status = 'succeeded' AND n.new_state IS NOT NULL THEN n.new_state ELSE s.state END,
             turn_number = s.turn_number + n.fin::int,
             head_seq = CASE WHEN n.fin THEN n.next_seq ELSE s.head_seq END, updated_at = clock_timestamp(),
             status = CASE WHEN s.desired = 'pause' THEN 'paused'
                           WHEN NOT n.fin THEN CASE WHEN s.desired = 'kill' THEN s.status ELSE 'active' END
                           WHEN n.next_id IS NOT NULL THEN 'active' WHEN s.desired = 'kill' THEN 'cancelled'
                           WHEN n.status IN ('failed', 'dead_letter') THEN 'failed' ELSE 'idle' END,
             seen_at = CASE WHEN s.desired <> 'run' THEN coalesce(s.seen_at, clock_timestamp()) ELSE s.seen_at END,
             stopped_at = CASE WHEN s.desired = 'pause' OR s.desired = 'kill' AND n.fin
                               THEN coalesce(s.stopped_at, clock_timestamp()) ELSE s.stopped_at END,
             desired = CASE WHEN s.desired = 'kill' AND n.fin THEN 'run' ELSE s.desired END
      FROM n WHERE s.id = n.session_pk
      RETURNING s.id AS session_pk, s.turn_number + (NOT n.fin)::int AS turn_number, s.desired, n.next_id, n.next_status,
                n.next_due, n.id, n.epoch, n.status, n.fin, n.verb, n.due_at, n.later, n.attempt, n.started_at, n.code,
                n.message
    ), p AS (   -- ended: the next turn's row; not ended: its own row
      UPDATE agent_dispatch_queue q
         SET state = CASE WHEN s.fin AND s.next_status = 'submitted' THEN q.state WHEN s.desired = 'pause' THEN 4
                          WHEN CASE WHEN s.fin THEN s.next_due ELSE s.due_at END > clock_timestamp() THEN 2 ELSE 1 END,
             due_at = CASE WHEN s.fin THEN s.next_due ELSE s.due_at END, claimed_at = NULL,
             rank = CASE WHEN s.verb = 'handback' AND NOT s.fin THEN q.rank
                         ELSE clock_timestamp() + q.priority * interval '5 min' END
      FROM s WHERE q.work_item_id = CASE WHEN s.fin THEN s.next_id ELSE s.id END
      RETURNING q.work_item_id, q.state
    ), a AS (
      DELETE FROM agent_dispatch_queue q USING d WHERE q.work_item_id = d.id AND d.fin
    ), o AS (
      INSERT INTO outcomes (work_item_id, epoch, status, result, error_code, error_message, created_at)
      SELECT d.id, d.epoch, d.status, CASE WHEN d.status = 'succeeded' THEN coalesce(d.result, 'null') END,
             CASE WHEN d.status = 'succeeded' THEN '' ELSE coalesce(d.code, '') END,
             CASE WHEN d.status = 'succeeded' THEN '' ELSE coalesce(d.message, '') END, clock_timestamp()
      FROM d WHERE d.fin
    ), t AS (
      INSERT INTO turns (session_pk, turn_number, epoch, work_item_id, status, attempt, started_at, finished_at)
      SELECT s.session_pk, s.turn_number, s.epoch, s.id, CASE WHEN s.fin THEN s.status ELSE s.verb END,
             s.attempt + (s.verb IN ('snooze', 'handback'))::int, s.started_at, clock_timestamp() FROM s
    ), e AS (
      INSERT INTO work_item_events (work_item_id, at, event, from_status, to_status, attempt, worker, epoch, reason)
      SELECT d.id, clock_timestamp(), CASE WHEN d.fin THEN d.status ELSE d.verb END, 'running', d.status, d.attempt, p_owner,
             d.epoch, left(concat_ws(': ', nullif(d.code, ''), nullif(d.message, '')), 1000) FROM d
    ), c AS (
      INSERT INTO turn_counters (outcome, shard, count)
      SELECT o.outcome, pg_backend_pid() % 16, count(*) FROM (
        SELECT CASE WHEN d.status = 'succeeded' THEN 'completed' WHEN d.status <> 'cancelled' THEN 'failed'
                    WHEN d.code = 'expired' THEN 'expired' ELSE 'cancelled' END AS outcome FROM d WHERE d.fin) o
      GROUP BY 1 ORDER BY 1
      ON CONFLICT (outcome, shard) DO UPDATE SET count = turn_counters.count + excluded.count
    )
    SELECT 'settled', s.id, s.epoch, s.status::text, s.code, NULL::text, NULL::text, s.next_id, NULL::text, NULL::bigint,
           NULL::int, NULL::text, NULL::text, NULL::int, NULL::int, NULL::text, NULL::timestamptz, NULL::text,
           NULL::text, NULL::text, NULL::text, NULL::text
    FROM s;
    -- a new snapshot: it sees a dependent whose dispatch held the parent's row until just now
    RETURN QUERY
    SELECT DISTINCT 'watched', y.parent_id, NULL::int, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::text,
           NULL::bigint, NULL::int, NULL::text, NULL::text, NULL::int, NULL::int, NULL::text, NULL::timestamptz, NULL::text,
           NULL::text, NULL::text, NULL::text, NULL::text
    FROM work_item_dependencies y WHERE y.parent_id = ANY (v_id);
    v_promoted := ARRAY(
      SELECT q.work_item_id FROM sessions s
      JOIN work_items w ON w.session_pk = s.id AND w.session_seq = s.head_seq
      JOIN agent_dispatch_queue q ON q.work_item_id = w.id AND q.state = 1
      WHERE s.id = ANY (v_session));
  END IF;
  IF p_want > 0 THEN
    SELECT array_agg(a.a), array_agg(k.k) INTO v_a, v_k
    FROM unnest(p_agents) a(a) CROSS JOIN unnest(p_kinds) k(k)
    WHERE (SELECT true FROM agent_dispatch_queue q WHERE q.state = 1 AND q.agent_name = a.a AND q.kind = k.k LIMIT 1)
      AND NOT EXISTS (SELECT 1 FROM claim_gates g
                      WHERE g.scope = 'fleet' OR g.scope = 'agent' AND g.name = a.a OR g.scope = 'kind' AND g.name = k.k);
    IF v_a IS NOT NULL THEN
      -- the next tenants that have a claimable turn in these lanes, round the ring from the last one served
      v_tenants := ARRAY(
        WITH RECURSIVE ring AS (
          SELECT p_cursor AS t, false AS w
          UNION ALL
          SELECT coalesce(u.t, b.t), ring.w OR u.t IS NULL
          FROM ring CROSS JOIN LATERAL (
            SELECT min(x.tenant) AS t FROM unnest(v_a, v_k) l(a, k) CROSS JOIN LATERAL (
              SELECT q.tenant FROM agent_dispatch_queue q
              WHERE q.state = 1 AND q.agent_name = l.a AND q.kind = l.k AND q.tenant > ring.t
              ORDER BY q.tenant LIMIT 1) x) u
          CROSS JOIN LATERAL (
            SELECT min(x.tenant) AS t FROM unnest(v_a, v_k) l(a, k) CROSS JOIN LATERAL (
              SELECT q.tenant FROM agent_dispatch_queue q WHERE q.state = 1 AND q.agent_name = l.a AND q.kind = l.k
              ORDER BY q.tenant LIMIT 1) x
            WHERE u.t IS NULL AND NOT ring.w) b
          WHERE NOT (ring.w AND ring.t >= p_cursor) AND coalesce(u.t, b.t) IS NOT NULL
            AND (NOT (ring.w OR u.t IS NULL) OR coalesce(u.t, b.t) <= p_cursor))
        SELECT ring.t FROM (SELECT * FROM ring OFFSET 1) ring
        WHERE NOT EXISTS (SELECT 1 FROM claim_gates g WHERE g.scope = 'tenant' AND g.name = ring.t) LIMIT p_want);
      v_left := p_want;
      FOREACH v_tenant IN ARRAY v_tenants LOOP
        v_share := ceil(v_left::numeric / (cardinality(v_tenants) - v_place));
        v_place := v_place + 1;
        v_got := '{}';
        IF cardinality(v_a) > 1 THEN   -- merge the lanes by rank, then lock no more than the share
          v_got := ARRAY(
            SELECT q.work_item_id FROM (
              SELECT x.work_item_id, x.rank FROM unnest(v_a, v_k) l(a, k) CROSS JOIN LATERAL (
                SELECT q.work_item_id, q.rank FROM agent_dispatch_queue q
                WHERE q.state = 1 AND q.agent_name = l.a AND q.kind = l.k AND q.tenant = v_tenant
                  AND (q.deadline IS NULL OR q.deadline > now())
                ORDER BY q.rank, q.work_item_id LIMIT v_share) x
              ORDER BY x.rank, x.work_item_id LIMIT v_share) c
            JOIN agent_dispatch_queue q ON q.work_item_id = c.work_item_id AND q.state = 1
            ORDER BY c.rank, c.work_item_id FOR UPDATE OF q SKIP LOCKED);
        END IF;
        IF cardinality(v_got) < v_share THEN   -- one lane, or another consumer holds the first of them: walk on
          v_got := v_got || ARRAY(
            SELECT x.work_item_id FROM unnest(v_a, v_k) l(a, k) CROSS JOIN LATERAL (
              SELECT q.work_item_id FROM agent_dispatch_queue q
              WHERE q.state = 1 AND q.agent_name = l.a AND q.kind = l.k AND q.tenant = v_tenant
                AND (q.deadline IS NULL OR q.deadline > now()) AND q.work_item_id <> ALL (v_got)
              ORDER BY q.rank, q.work_item_id LIMIT v_share - cardinality(v_got) FOR UPDATE SKIP LOCKED) x
            LIMIT v_share - cardinality(v_got));
        END IF;
        v_ids := v_ids || v_got;
        v_left := v_left - cardinality(v_got);
      END LOOP;
    END IF;
    IF v_ids <> '{}' THEN
      UPDATE agent_dispatch_queue q SET state = 3, claimed_at = clock_timestamp() WHERE q.work_item_id = ANY (v_ids);
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
             w.checkpoint::text, w.suspended_for::text
      FROM w JOIN sessions s ON s.id = w.session_pk ORDER BY array_position(v_ids, w.id);
      -- what was picked and is not ready has a stale row: it is told, and put right by its own transaction
      RETURN QUERY
      SELECT 'stale', x.id, NULL::int, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
             NULL::text, NULL::bigint, NULL::int, NULL::text, NULL::text, NULL::int, NULL::int, NULL::text,
             NULL::timestamptz, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text
      FROM unnest(v_ids) x(id)
      WHERE NOT EXISTS (SELECT 1 FROM work_items w WHERE w.id = x.id AND w.owner = p_owner AND w.status = 'running');
    END IF;
  END IF;
  -- a head that was freed and is not ours may be another's; a NOTIFY serializes commits, so only then
  IF EXISTS (SELECT 1 FROM unnest(v_promoted) x(id) WHERE x.id <> ALL (v_ids)) THEN
    PERFORM pg_notify('fleetsite_turns', '');
  END IF;
END $f$;
