-- Rewards that a night gave, the newest of each member where settings changed in between.
SELECT
    trajectory_id,
    group_id,
    reward,
    verifier_score,
    ruler_score,
    passed,
    reason
FROM rewards.rewards
WHERE night = $night AND rubric_hash = $rubric_hash
QUALIFY row_number() OVER (PARTITION BY trajectory_id, group_id ORDER BY sequence DESC, reward_key ASC) = 1
ORDER BY group_id, trajectory_id
