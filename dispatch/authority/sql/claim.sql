-- The claim by job id: what decides about each of the deliveries that a consumer has in hand, in one read.
-- Who wins is decided by the queue row that is taken, and by the guards of step.sql's claim_items.

-- name: look_up
SELECT work_items.id, job_id, work_items.tenant, work_items.status, session_seq, head_seq, desired, kind, agent_name,
       due_at, deadline
  FROM work_items JOIN sessions ON sessions.id = session_pk
 WHERE job_id IN (VALUES {rows})

-- name: look_up_items
SELECT work_items.id, job_id, work_items.tenant, work_items.status, session_seq, head_seq, desired, kind, agent_name,
       due_at, deadline
  FROM work_items JOIN sessions ON sessions.id = session_pk
 WHERE work_items.id IN (VALUES {rows})
