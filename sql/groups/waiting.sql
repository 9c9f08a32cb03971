-- How many trajectories could be in a group and are in none.
SELECT count(*) AS num_waiting
FROM trajectories.trajectories AS t
WHERE
    t.purpose IN ('production', 'top_up')
    AND t.fault IS NULL
    AND NOT EXISTS (SELECT 1 FROM groups.groups AS g WHERE g.trajectory_id = t.trajectory_id)
ORDER BY num_waiting
