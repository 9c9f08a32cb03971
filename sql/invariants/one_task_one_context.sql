-- I4: groups that mix tasks, contexts or policy families, or whose rows disagree with their trajectories,
-- and trajectories that are members of two groups.
WITH members AS (
    SELECT * FROM groups.groups WHERE role = 'member'
),
mixed AS (
    SELECT group_id AS broken
    FROM members
    GROUP BY group_id
    HAVING count(DISTINCT task_key) > 1 OR count(DISTINCT context_key) > 1 OR count(DISTINCT policy_family) > 1
),
disagreeing AS (
    SELECT members.group_id AS broken
    FROM members
    JOIN trajectories.trajectories AS trajectories USING (trajectory_id)
    WHERE members.task_key <> trajectories.task_key
        OR ($strict AND members.context_key <> trajectories.context_key)
        OR members.policy_family <> trajectories.policy_family
),
doubled AS (
    SELECT trajectory_id AS broken FROM members GROUP BY trajectory_id HAVING count(DISTINCT group_id) > 1
)
SELECT DISTINCT broken
FROM (SELECT broken FROM mixed UNION ALL SELECT broken FROM disagreeing UNION ALL SELECT broken FROM doubled)
ORDER BY broken
