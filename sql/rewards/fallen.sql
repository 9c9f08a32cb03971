-- How many of an attempt's groups became stale: what was verified before may read otherwise since.
-- Of groups that became stale before their members were kept with them, those that lie in the windows that are looked at count.
WITH stale AS (
    SELECT s.group_id, unnest(s.trajectory_ids) AS trajectory_id
    FROM groups.stale AS s
    UNION
    SELECT g.group_id, g.trajectory_id
    FROM groups.groups AS g
    INNER JOIN groups.stale AS s ON s.group_id = g.group_id AND s.trajectory_ids IS NULL
    WHERE g."role" = 'member'
)
SELECT trajectory_id, CAST(count(DISTINCT group_id) AS INTEGER) AS times
FROM stale
GROUP BY trajectory_id
ORDER BY trajectory_id
