-- Tasks that were logged and have no split yet.
SELECT DISTINCT t.task_key
FROM trajectories.trajectories AS t
WHERE NOT EXISTS (SELECT 1 FROM groups.splits AS s WHERE s.task_key = t.task_key)
ORDER BY t.task_key
