-- What a checkpoint's batches were made under: rubrics, rules of the rewards in force, and whether groups were trained again.
WITH frozen AS (
    SELECT DISTINCT consumed.group_id, consumed.rubric_hash, consumed.again
    FROM batches.consumed AS consumed
    WHERE list_contains($batch_ids, consumed.batch_id)
),

in_force AS (
    SELECT rewards.group_id, rewards.rubric_hash, arg_max(rewards.rule, rewards.sequence) AS rule
    FROM rewards.rewards AS rewards
    GROUP BY rewards.trajectory_id, rewards.group_id, rewards.rubric_hash
)

SELECT
    list_sort(list(DISTINCT frozen.rubric_hash)) AS rubric_hashes,
    coalesce(list_sort(list(DISTINCT in_force.rule) FILTER (WHERE in_force.rule IS NOT NULL)), []) AS rules,
    bool_or(frozen.again) AS again
FROM frozen
LEFT JOIN in_force ON frozen.group_id = in_force.group_id AND frozen.rubric_hash = in_force.rubric_hash
ORDER BY again
