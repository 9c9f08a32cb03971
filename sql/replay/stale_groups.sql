-- Sealed groups that hold a member whose row is another now, or is gone, with what rests on them.
-- Handed in: moved (trajectory_id, reason: member_changed | member_removed).
WITH touched AS (
    SELECT g.group_id, max(m.reason) AS reason, count(*) AS num_members  -- removed goes before changed
    FROM groups.groups AS g
    INNER JOIN moved AS m ON m.trajectory_id = g.trajectory_id
    WHERE g."role" = 'member'
    GROUP BY g.group_id
),
members AS (
    SELECT g.group_id, list(g.trajectory_id ORDER BY g.trajectory_id) AS trajectory_ids
    FROM groups.groups AS g
    WHERE g."role" = 'member'
    GROUP BY g.group_id
),
rewarded AS (
    SELECT group_id, count(*) AS num_rewards
    FROM rewards.rewards
    GROUP BY group_id
)
SELECT
    t.group_id,
    t.reason,
    t.num_members,
    a.trajectory_ids,
    coalesce(r.num_rewards, 0) AS num_rewards,
    s.group_id IS NOT NULL AS known
FROM touched AS t
INNER JOIN members AS a ON a.group_id = t.group_id
LEFT JOIN rewarded AS r ON r.group_id = t.group_id
LEFT JOIN groups.stale AS s ON s.group_id = t.group_id
ORDER BY t.group_id
