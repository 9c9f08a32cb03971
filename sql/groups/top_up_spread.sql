-- By night, the groups with top-ups that were sealed before $night and have rewards, and how many of them have no spread.
-- Parameters: $night, $rubric_hash, $min_spread (1e-6).
WITH topped_up AS (
    SELECT g.group_id, min(g.sealed_night) AS sealed_night
    FROM groups.groups AS g
    INNER JOIN trajectories.trajectories AS t ON t.trajectory_id = g.trajectory_id
    ANTI JOIN groups.stale AS s ON s.group_id = g.group_id
    WHERE g."role" = 'member' AND g.sealed_night < $night
    GROUP BY g.group_id
    HAVING bool_or(t.purpose = 'top_up')
),
in_force AS (
    SELECT group_id, reward
    FROM rewards.rewards
    WHERE rubric_hash = $rubric_hash
    QUALIFY row_number() OVER (PARTITION BY group_id, trajectory_id ORDER BY sequence DESC, reward_key) = 1
),
spreads AS (
    SELECT group_id, max(reward) - min(reward) <= $min_spread AS is_flat
    FROM in_force
    WHERE reward IS NOT NULL
    GROUP BY group_id
)
SELECT g.sealed_night AS night, count(*) AS num_groups, count(*) FILTER (WHERE p.is_flat) AS num_flat
FROM topped_up AS g
INNER JOIN spreads AS p ON p.group_id = g.group_id
GROUP BY g.sealed_night
ORDER BY night
