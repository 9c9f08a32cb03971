-- Requests of some tasks as their attempts have them.
-- Handed in: asked (task_key).
SELECT DISTINCT t.task_key, t.request_signature
FROM trajectories.trajectories AS t
WHERE t.request_signature IS NOT NULL AND t.task_key IN (SELECT a.task_key FROM asked AS a)
ORDER BY t.task_key, t.request_signature
