-- The rows of groups/groups for the anchors of groups that are sealed now and hold a top-up, one each: a logged attempt of another
-- model at the same task (and, if strict, under the same context) that ran to its end, a passed one first, then the newest, then
-- the smallest id. An anchor is shown and never counted; it may be a member elsewhere, and was logged in any window.
-- Handed in: members (rows of members.sql). Parameters: $night, $strict, $pass_at (1e-6).
WITH topped_up AS (
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
)
SELECT
    g.group_id,
    t.trajectory_id,
    t.task_key,
    t.context_key,
    t.run_key,
    t.policy_family,
    t.policy_version,
    t.content_id,
    t.outcome,
    g."window",
    t."day",
    'anchor' AS "role",
    g.seal_reason,
    $night AS sealed_night
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
ORDER BY g.group_id, t.trajectory_id
