-- Groups with spread that could train in a lane tonight, or that tonight's batches took: one row each, in the order in which the
-- groups of one cluster are taken. Each task gives its first group before any gives a second, since another task teaches more than
-- more attempts at the same one; then the largest spread, then the newest window, whose attempts are nearest to the policy.
-- `num_taken`: groups of the cluster in tonight's batches. Groups of another night's batches, and those whose members trained in
-- one, are none of it.
-- Handed in: eligible (trajectory_id, eligible_for, split, task_key, ...), clusters (task_key, cluster; null: each task is one).
-- Parameters: $night, $lane, $rubric_hash, $settings_key, $min_spread.
WITH in_force AS (
    SELECT
        trajectory_id,
        group_id,
        reward
    FROM rewards.rewards
    WHERE rubric_hash = $rubric_hash AND starts_with(reward_key, $settings_key)
    QUALIFY row_number() OVER (PARTITION BY trajectory_id, group_id ORDER BY sequence DESC, reward_key ASC) = 1
),

consumed AS (
    SELECT
        group_id,
        bool_and(night = $night AND lane = $lane) AS tonight
    FROM batches.consumed
    GROUP BY group_id
),

used AS (
    SELECT DISTINCT members.trajectory_id
    FROM groups.groups AS members
    INNER JOIN consumed ON consumed.group_id = members.group_id AND NOT consumed.tonight
),

contenders AS (
    SELECT
        members.group_id,
        min(members.task_key) AS task_key,
        min(members."window") AS "window",
        max(in_force.reward) - min(in_force.reward) AS spread,
        coalesce(bool_or(consumed.tonight), false) AS tonight
    FROM groups.groups AS members
    INNER JOIN in_force
        ON in_force.trajectory_id = members.trajectory_id AND in_force.group_id = members.group_id
    INNER JOIN eligible ON eligible.trajectory_id = members.trajectory_id
    LEFT JOIN consumed ON consumed.group_id = members.group_id
    ANTI JOIN used ON used.trajectory_id = members.trajectory_id
    ANTI JOIN groups.stale AS stale ON stale.group_id = members.group_id
    WHERE
        members.role = 'member'
        AND in_force.reward IS NOT NULL
        AND eligible.eligible_for = $lane
        AND eligible.split = 'train'
    GROUP BY members.group_id
    HAVING max(in_force.reward) - min(in_force.reward) > $min_spread
),

placed AS (
    SELECT
        contenders.*,
        coalesce(clusters.cluster, contenders.task_key) AS cluster,
        row_number() OVER (
            PARTITION BY contenders.task_key ORDER BY contenders.spread DESC, contenders."window" DESC, contenders.group_id
        ) AS place_of_task
    FROM contenders
    LEFT JOIN clusters ON clusters.task_key = contenders.task_key
)

SELECT
    group_id,
    task_key,
    cluster,
    tonight,
    count(*) FILTER (WHERE tonight) OVER (PARTITION BY cluster) AS num_taken
FROM placed
ORDER BY cluster, place_of_task, spread DESC, "window" DESC, group_id
