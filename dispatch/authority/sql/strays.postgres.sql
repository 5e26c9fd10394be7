-- Where the queue lives in the state store, what does not agree is found by the database: nothing is locked, and no row
-- that agrees is sent. What a row must say is states.queue_state, and a test holds the two together.

-- name: items
SELECT w.id, q.work_item_id IS NULL
FROM (SELECT id, session_pk, session_seq, status, due_at FROM work_items
      WHERE finished_at IS NULL ORDER BY id LIMIT %(limit)s) w
JOIN sessions s ON s.id = w.session_pk
LEFT JOIN agent_dispatch_queue q ON q.work_item_id = w.id
CROSS JOIN LATERAL (SELECT CASE
    WHEN w.status IN ('leased', 'running') THEN 3
    WHEN w.status = 'suspended' THEN 6
    WHEN w.status = 'submitted' THEN 5
    WHEN w.session_seq IS DISTINCT FROM s.head_seq THEN 0
    WHEN s.desired = 'pause' THEN 4
    WHEN w.due_at > clock_timestamp() THEN 2
    ELSE 1 END AS state) wanted
WHERE q.work_item_id IS NULL
   -- a time that has come is no fault: the due tick's next run moves the row
   OR (q.state <> wanted.state AND NOT (q.state = 2 AND wanted.state = 1 AND q.due_at IS NOT DISTINCT FROM w.due_at
                                        AND q.due_at IS NOT NULL))
   -- its session has another head than its first unfinished turn: nothing would ever promote it
   OR w.session_seq < s.head_seq
   OR NOT EXISTS (SELECT 1 FROM work_items h
                  WHERE h.session_pk = w.session_pk AND h.session_seq = s.head_seq AND h.finished_at IS NULL)

-- name: left_over
SELECT q.work_item_id
FROM (SELECT work_item_id FROM agent_dispatch_queue ORDER BY work_item_id LIMIT %(limit)s) q
WHERE NOT EXISTS (SELECT 1 FROM work_items w WHERE w.id = q.work_item_id AND w.finished_at IS NULL)
