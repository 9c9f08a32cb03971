-- I14: trajectories in more than one batch, counting only batches that were not frozen again on purpose.
WITH again AS (
    SELECT DISTINCT batch_id FROM batches.consumed WHERE again
)
SELECT batch_rows.trajectory_id AS broken
FROM batch_rows
LEFT JOIN again USING (batch_id)
WHERE again.batch_id IS NULL
GROUP BY batch_rows.trajectory_id
HAVING count(DISTINCT batch_rows.batch_id) > 1
ORDER BY broken
