-- Which of some tasks have trained: a batch consumed a group of theirs.
-- Handed in: asked (task_key).
SELECT DISTINCT g.task_key
FROM groups.groups AS g
SEMI JOIN batches.consumed AS c ON c.group_id = g.group_id
WHERE g.task_key IN (SELECT a.task_key FROM asked AS a)
ORDER BY g.task_key
