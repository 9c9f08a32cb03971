-- The rows of groups/groups for cuts that are sealed now: their members, and beside those that hold a top-up one anchor: a logged
-- attempt of another model at the same task (and, if strict, under the same context) that ran to its end, a passed one first,
-- then the newest, then the smallest id. An anchor is shown and never counted; it may be a member elsewhere.
-- Handed in: cuts (group_id, window, seal_reason, trajectory_ids). Parameters: $night, $strict, $pass_at (1e-6).
WITH members AS (
    SELECT c.group_id, c."window", c.seal_reason, t.*
    FROM (SELECT group_id, "window", seal_reason, unnest(trajectory_ids) AS trajectory_id FROM cuts) AS c
    INNER JOIN trajectories.trajectories AS t ON t.trajectory_id = c.trajectory_id
),
topped_up AS (
    SELECT
        group_id,
        min("window") AS "window",
        min(seal_reason) AS seal_reason,
        min(task_key) AS task_key,
        min(context_key) AS context_key,
        min(policy_family) AS policy_family
    FROM members
    GROUP BY group_id
    HAVING bool_or(purpose = 'top_up')
),
anchors AS (
    SELECT g.group_id, g."window", g.seal_reason, t.*
    FROM topped_up AS g
    INNER JOIN trajectories.trajectories AS t ON t.task_key = g.task_key AND t.policy_family <> g.policy_family
    WHERE
        (NOT $strict OR t.context_key = g.context_key)
        AND t.purpose = 'production'
        AND t.fault IS NULL
        AND t.num_sampled_turns > 0
    QUALIFY row_number() OVER (
        PARTITION BY g.group_id
        ORDER BY coalesce(t.outcome >= $pass_at, false) DESC, t.ended_at DESC NULLS LAST, t."day" DESC, t.trajectory_id
    ) = 1
)
SELECT
    group_id,
    trajectory_id,
    task_key,
    context_key,
    policy_family,
    policy_version,
    content_id,
    outcome,
    "window",
    "day",
    "role",
    seal_reason,
    $night AS sealed_night
FROM (
    SELECT *, 'member' AS "role" FROM members
    UNION ALL BY NAME
    SELECT *, 'anchor' AS "role" FROM anchors
)
ORDER BY group_id, trajectory_id
