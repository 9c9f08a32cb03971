-- Batches that consumed some groups. Handed in: stale (group_id).
SELECT DISTINCT c.batch_id
FROM batches.consumed AS c
WHERE c.group_id IN (SELECT s.group_id FROM stale AS s)
ORDER BY c.batch_id
