-- The checkpoint that a night trained, and whom it is or was measured against (null where it is not decided on yet).
WITH decided AS (
    SELECT
        challenger,
        arg_max(measured_against, number) AS measured_against
    FROM promotion.decisions
    WHERE policy = $policy
    GROUP BY challenger
)
SELECT
    checkpoints.checkpoint_id,
    checkpoints.metrics,
    decided.measured_against
FROM checkpoints.checkpoints AS checkpoints
LEFT JOIN decided ON decided.challenger = checkpoints.checkpoint_id
WHERE checkpoints.night = $night AND checkpoints.policy = $policy
ORDER BY checkpoints.version DESC
LIMIT 1
