-- Breaches of I4 and of sealing, none of which may exist: each row names a group and what does not hold in it.
-- Stale groups are known to hold what no longer is, and train no more. Handed in: depths (policy_version, depth). Parameters: $strict, $max_policy_lag.
WITH members AS (
    SELECT
        g.group_id,
        g.trajectory_id,
        g.task_key,
        g.context_key,
        g.policy_family,
        d.depth,
        g."window",
        t.trajectory_id AS known_id,
        t.task_key AS known_task_key,
        t.context_key AS known_context_key,
        t.policy_family AS known_policy_family,
        t.purpose,
        count(*) OVER (PARTITION BY g.trajectory_id) AS num_memberships
    FROM groups.groups AS g
    LEFT JOIN trajectories.trajectories AS t ON t.trajectory_id = g.trajectory_id
    LEFT JOIN depths AS d ON d.policy_version = g.policy_version
    ANTI JOIN groups.stale AS s ON s.group_id = g.group_id
    WHERE g."role" = 'member'
),
found AS (
    SELECT group_id, unnest([
        CASE WHEN count(*) < 2 THEN 'single_member' END,
        CASE WHEN count(DISTINCT task_key) > 1 THEN 'several_tasks' END,
        CASE WHEN $strict AND count(DISTINCT context_key) > 1 THEN 'several_contexts' END,
        CASE WHEN count(DISTINCT policy_family) > 1 THEN 'several_policy_families' END,
        CASE WHEN count(DISTINCT "window") > 1 THEN 'several_windows' END,
        CASE WHEN max(depth) - min(depth) > $max_policy_lag THEN 'versions_too_far_apart' END,
        CASE WHEN max(num_memberships) > 1 THEN 'member_of_several_groups' END,
        CASE WHEN bool_or(known_id IS NULL) THEN 'member_without_trajectory' END,
        CASE WHEN bool_or(known_task_key <> task_key OR known_policy_family <> policy_family) THEN 'member_has_changed' END,
        CASE WHEN $strict AND bool_or(known_context_key <> context_key) THEN 'member_has_changed_context' END,
        CASE WHEN bool_or(purpose = 'evaluation') THEN 'evaluation_rollout' END
    ]) AS violation
    FROM members
    GROUP BY group_id
),
-- what stands on the members, as it was sealed: an anchor that became another since only shows what it no longer is
ground AS (
    SELECT group_id, min(task_key) AS task_key, min(context_key) AS context_key, min(policy_family) AS policy_family
    FROM members
    GROUP BY group_id
),
anchored AS (
    SELECT g.group_id, unnest([
        CASE WHEN count(*) > 1 THEN 'several_anchors' END,
        CASE WHEN bool_or(g.task_key IS DISTINCT FROM m.task_key) THEN 'anchor_of_another_task' END,
        CASE WHEN $strict AND bool_or(g.context_key IS DISTINCT FROM m.context_key) THEN 'anchor_under_another_context' END,
        CASE WHEN bool_or(g.policy_family IS NOT DISTINCT FROM m.policy_family) THEN 'anchor_of_the_same_policy' END
    ]) AS violation
    FROM groups.groups AS g
    LEFT JOIN ground AS m ON m.group_id = g.group_id
    ANTI JOIN groups.stale AS s ON s.group_id = g.group_id
    WHERE g."role" = 'anchor'
    GROUP BY g.group_id
)
SELECT group_id, violation
FROM (SELECT * FROM found UNION ALL SELECT * FROM anchored)
WHERE violation IS NOT NULL
ORDER BY group_id, violation
