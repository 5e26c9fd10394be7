-- Keep the shards of the admission bound in step with the queue: suspended rows (6) are not counted.
-- A backend writes the shard of its own number and, when its quota is used up, takes from the others what is free there:
-- the quotas add up to the bound. A resumed turn, and a row that a repair makes again (fleetsite.readmit), were admitted
-- before: they raise the quota. What ends after that may free a place that the bound does not have, so while a raised
-- shard is left every admission is refused and the quotas are counted out anew (make_room).
-- Shards are locked after sessions and rows, all of them in order, and by nobody who waits for anything afterwards.
CREATE OR REPLACE FUNCTION admission_account_v1() RETURNS trigger LANGUAGE plpgsql
-- a plan that reads all shards counts as dear without a scan: compiling it would take longer than the rest of the call
SET enable_seqscan = off SET jit = off AS $f$
DECLARE
  v_change bigint; v_shard int := pg_backend_pid() % 64; v_free bigint; v_own bigint; v_need bigint; v_raised boolean;
BEGIN
  IF TG_OP = 'INSERT' THEN
    SELECT count(*) INTO v_change FROM new_rows WHERE state <> 6;
  ELSIF TG_OP = 'DELETE' THEN
    SELECT -count(*) INTO v_change FROM old_rows WHERE state <> 6;
  ELSE
    SELECT (SELECT count(*) FROM new_rows WHERE state <> 6) - (SELECT count(*) FROM old_rows WHERE state <> 6)
      INTO v_change;
  END IF;
  IF v_change = 0 THEN RETURN NULL; END IF;
  IF TG_OP <> 'INSERT' OR current_setting('fleetsite.readmit', true) = 'on' THEN
    UPDATE admission_shards
       SET used = used + v_change, quota = greatest(quota, used + v_change), raised = raised OR used + v_change > quota
     WHERE id = v_shard;
    IF NOT FOUND THEN   -- somebody emptied the table: the account begins anew
      INSERT INTO admission_shards AS s (id, used, quota, raised)
      VALUES (v_shard, v_change, greatest(v_change, 0), true)
      ON CONFLICT (id) DO UPDATE SET used = s.used + v_change, quota = greatest(s.quota, s.used + v_change), raised = true;
    END IF;
    RETURN NULL;
  END IF;
  -- looked at without a lock, and not in the UPDATE's condition: one that had waited and then failed would keep the row
  -- locked while it waits for the others. What was taken from it since is refused by the CHECK, and tried again.
  IF EXISTS (SELECT 1 FROM admission_shards WHERE id = v_shard AND used + v_change <= quota)
     AND NOT EXISTS (SELECT 1 FROM admission_shards WHERE raised) THEN
    UPDATE admission_shards SET used = used + v_change WHERE id = v_shard;
    RETURN NULL;
  END IF;
  PERFORM 1 FROM admission_shards ORDER BY id FOR UPDATE;
  SELECT sum(quota - used), bool_or(raised), sum(quota - used) FILTER (WHERE id = v_shard)
    INTO v_free, v_raised, v_own FROM admission_shards;
  IF v_free IS NULL OR v_own IS NULL OR v_raised OR v_free < v_change THEN
    RAISE check_violation USING CONSTRAINT = 'admission_shards_bound', MESSAGE = 'the admission quotas do not allow it';
  END IF;
  v_need := greatest(0, v_change - v_own + (v_free - v_change) / 64);   -- and its share of what is left
  UPDATE admission_shards s SET quota = s.quota - least(d.spare, v_need - (d.upto - d.spare))
    FROM (SELECT x.id, x.quota - x.used AS spare, sum(x.quota - x.used) OVER (ORDER BY x.id) AS upto
            FROM admission_shards x WHERE x.quota > x.used AND x.id <> v_shard) d
   WHERE s.id = d.id AND d.upto - d.spare < v_need;
  UPDATE admission_shards SET quota = quota + v_need, used = used + v_change WHERE id = v_shard;
  RETURN NULL;
END $f$;

CREATE OR REPLACE TRIGGER admission_insert AFTER INSERT ON agent_dispatch_queue
  REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION admission_account_v1();
CREATE OR REPLACE TRIGGER admission_delete AFTER DELETE ON agent_dispatch_queue
  REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION admission_account_v1();
CREATE OR REPLACE TRIGGER admission_update AFTER UPDATE ON agent_dispatch_queue
  REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION admission_account_v1();
