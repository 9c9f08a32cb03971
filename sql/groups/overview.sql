-- What the log is worth, one row: groups that are sealed and those that would be sealed now, by the outcome that their
-- members logged. A group without any logged outcome is unknown; where some have one, those decide.
-- Handed in: cuts (trajectory_ids). Parameter: $pass_at, in 1e-6.
WITH memberships AS (
    SELECT group_id, trajectory_id
    FROM groups.groups
    WHERE "role" = 'member' AND group_id NOT IN (SELECT s.group_id FROM groups.stale AS s)
    UNION ALL
    SELECT trajectory_ids[1] AS group_id, unnest(trajectory_ids) AS trajectory_id FROM cuts
),
outcomes AS (
    SELECT
        m.group_id,
        count(t.outcome) AS num_known,
        count(*) FILTER (WHERE t.outcome >= $pass_at) AS num_passed
    FROM memberships AS m
    INNER JOIN trajectories.trajectories AS t ON t.trajectory_id = m.trajectory_id
    GROUP BY m.group_id
)
SELECT
    (SELECT count(*) FROM trajectories.trajectories) AS trajectories,
    count(*) AS groups,
    count(*) FILTER (WHERE num_passed > 0 AND num_passed < num_known) AS groups_mixed,
    count(*) FILTER (WHERE num_known > 0 AND num_passed = num_known) AS groups_all_pass,
    count(*) FILTER (WHERE num_known > 0 AND num_passed = 0) AS groups_all_fail,
    count(*) FILTER (WHERE num_known = 0) AS groups_unknown
FROM outcomes
ORDER BY groups
