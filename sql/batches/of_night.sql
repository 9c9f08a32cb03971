-- Batches that a night froze, those frozen again last.
SELECT
    batch_id,
    bool_or(again) AS again
FROM batches.consumed
WHERE night = $night
GROUP BY batch_id
ORDER BY again, batch_id
