-- Tasks that were logged and have no split yet. Where some of their attempts were at tasks of another key before rules or a
-- parser changed, `inherited` is the strictest split of those (audit, then held_out, then train), else null.
WITH former AS (
    SELECT
        t.task_key,
        max(CASE s.split WHEN 'audit' THEN 2 WHEN 'held_out' THEN 1 ELSE 0 END) AS strictest
    FROM trajectories.renamed AS r
    INNER JOIN trajectories.trajectories AS t ON t.trajectory_id = r.trajectory_id
    INNER JOIN groups.splits AS s ON s.task_key = r.former_key
    GROUP BY t.task_key
)
SELECT DISTINCT
    t.task_key,
    CASE f.strictest WHEN 2 THEN 'audit' WHEN 1 THEN 'held_out' WHEN 0 THEN 'train' END AS inherited
FROM trajectories.trajectories AS t
LEFT JOIN former AS f ON f.task_key = t.task_key
WHERE NOT EXISTS (SELECT 1 FROM groups.splits AS s WHERE s.task_key = t.task_key)
ORDER BY t.task_key
