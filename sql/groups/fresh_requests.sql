-- Requests of tasks with a split that were not compared with the tasks of other splits yet, or down to a higher similarity only.
-- Parameter: $near_threshold (1e-6).
SELECT DISTINCT t.task_key, s.split, t.request_signature
FROM trajectories.trajectories AS t
INNER JOIN groups.splits AS s ON s.task_key = t.task_key
WHERE
    t.request_signature IS NOT NULL
    AND NOT EXISTS (
        SELECT 1
        FROM groups.requests AS r
        WHERE
            r.task_key = t.task_key
            AND r.request_signature = t.request_signature
            AND r.near_threshold <= $near_threshold
    )
ORDER BY t.task_key, t.request_signature
