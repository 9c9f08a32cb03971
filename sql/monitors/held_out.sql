-- Held-out pass rate of some checkpoints, on the set as it was when each was last measured up to this night.
-- The audit set is read by no monitor.
WITH latest AS (
    SELECT
        checkpoint_id,
        arg_max(eval_set_hash, (night, eval_set_hash)) AS eval_set_hash
    FROM evaluation.results
    WHERE eval_set = 'held_out' AND night <= $night
    GROUP BY checkpoint_id
)
SELECT
    results.checkpoint_id,
    count(*) FILTER (WHERE results.passed) AS num_passed,
    count(results.passed) AS num_measured
FROM evaluation.results AS results
INNER JOIN latest
    ON latest.checkpoint_id = results.checkpoint_id AND latest.eval_set_hash = results.eval_set_hash
INNER JOIN measured ON measured.checkpoint_id = results.checkpoint_id
WHERE results.eval_set = 'held_out'
GROUP BY results.checkpoint_id
ORDER BY results.checkpoint_id
