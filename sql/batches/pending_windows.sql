-- Windows of the groups in batches that no checkpoint was trained on yet.
WITH trained AS (
    SELECT unnest(batches) AS batch_id
    FROM checkpoints.checkpoints
)
SELECT DISTINCT consumed."window"
FROM batches.consumed AS consumed
ANTI JOIN trained ON trained.batch_id = consumed.batch_id
ORDER BY consumed."window"
