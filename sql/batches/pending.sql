-- Batches that no checkpoint was trained on yet.
WITH trained AS (
    SELECT unnest(batches) AS batch_id
    FROM checkpoints.checkpoints
)
SELECT
    consumed.batch_id,
    consumed.night,
    consumed.lane,
    bool_or(consumed.again) AS again
FROM batches.consumed AS consumed
ANTI JOIN trained ON trained.batch_id = consumed.batch_id
GROUP BY consumed.batch_id, consumed.night, consumed.lane
ORDER BY consumed.night, consumed.batch_id, consumed.lane
