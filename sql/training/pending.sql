-- Batches that are frozen and in no checkpoint yet: what tonight's run trains on.
SELECT
    consumed.batch_id,
    min(consumed.lane) AS lane,
    min(consumed.night) AS night,
    bool_or(consumed.again) AS again
FROM batches.consumed AS consumed
WHERE consumed.batch_id NOT IN (
    SELECT unnest(checkpoints.batches) FROM checkpoints.checkpoints AS checkpoints
)
GROUP BY consumed.batch_id
ORDER BY consumed.batch_id
