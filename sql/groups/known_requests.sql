-- Requests of some tasks that have a split.
-- Handed in: asked (task_key).
SELECT DISTINCT r.task_key, r.request_signature
FROM groups.requests AS r
WHERE r.task_key IN (SELECT a.task_key FROM asked AS a)
ORDER BY r.task_key, r.request_signature
