-- Rewards that were made now and that the table does not hold yet, numbered behind those of their window, and behind those from
-- before windows were kept.
-- Handed in: made (rows of rewards/rewards).
WITH last AS (
    SELECT "window", max("sequence") AS "sequence" FROM rewards.rewards GROUP BY "window"
)
SELECT made.* REPLACE (greatest(coalesce(last."sequence", 0), coalesce(older."sequence", 0)) + 1 AS "sequence")
FROM made
LEFT JOIN last ON last."window" = made."window"
LEFT JOIN last AS older ON older."window" IS NULL
ANTI JOIN rewards.rewards AS held
    ON held.trajectory_id = made.trajectory_id
    AND held.group_id = made.group_id
    AND held.rubric_hash = made.rubric_hash
    AND held.reward_key = made.reward_key
ORDER BY made.group_id, made.trajectory_id
