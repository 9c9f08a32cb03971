-- The rows of groups/groups for cuts that are sealed now, their members; with each one's purpose.
-- Handed in: cuts (group_id, window, seal_reason, trajectory_ids). Parameter: $night.
SELECT
    c.group_id,
    t.trajectory_id,
    t.task_key,
    t.context_key,
    t.run_key,
    t.policy_family,
    t.policy_version,
    t.content_id,
    t.outcome,
    c."window",
    t."day",
    'member' AS "role",
    c.seal_reason,
    $night AS sealed_night,
    t.purpose
FROM (SELECT group_id, "window", seal_reason, unnest(trajectory_ids) AS trajectory_id FROM cuts) AS c
INNER JOIN trajectories.trajectories AS t ON t.trajectory_id = c.trajectory_id
ORDER BY c.group_id, t.trajectory_id
