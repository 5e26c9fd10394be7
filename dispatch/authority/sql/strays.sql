-- Where the queue is a table of the state store, the store itself compares: what agrees never leaves it.

-- name: astray
SELECT x.id, x.row_state IS NULL
FROM (
  SELECT w.id, w.session_pk, w.session_seq, w.due_at, s.head_seq, q.state AS row_state, q.due_at AS row_due_at,
         CASE WHEN w.status IN ('leased', 'running') THEN 3
              WHEN w.status = 'suspended' THEN 6
              WHEN w.status = 'submitted' THEN 5
              WHEN s.head_seq IS NULL OR w.session_seq <> s.head_seq THEN 0
              WHEN s.desired = 'pause' THEN 4
              WHEN w.due_at > %s THEN 2
              ELSE 1 END AS state
  FROM (SELECT * FROM work_items WHERE finished_at IS NULL ORDER BY id LIMIT %s) w
  JOIN sessions s ON s.id = w.session_pk
  LEFT JOIN agent_dispatch_queue q ON q.work_item_id = w.id
) x
WHERE x.row_state IS NULL
   -- a time that has come is no fault: the due tick's next run moves the row
   OR (x.row_state <> x.state AND NOT (x.row_state = 2 AND x.state = 1 AND coalesce(x.row_due_at = x.due_at, false)))
   -- a session with another head than its first unfinished turn: nothing would ever promote it
   OR x.head_seq IS NULL
   OR x.session_seq < x.head_seq
   OR NOT EXISTS (SELECT 1 FROM work_items h
                  WHERE h.session_pk = x.session_pk AND h.session_seq = x.head_seq AND h.finished_at IS NULL)

-- name: left_over
SELECT q.work_item_id
FROM (SELECT work_item_id FROM agent_dispatch_queue ORDER BY work_item_id LIMIT %s) q
LEFT JOIN work_items w ON w.id = q.work_item_id AND w.finished_at IS NULL
WHERE w.id IS NULL
