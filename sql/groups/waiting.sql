-- How many trajectories could be in a group and are in none. Handed in: taken (trajectory_id). Parameter: $masked.
SELECT count(*) AS num_waiting
FROM trajectories.trajectories AS t
WHERE
    t.purpose IN ('production', 'top_up')
    AND t.fault IS NULL
    AND NOT ($masked AND coalesce(t.truncated, false))
    AND NOT EXISTS (SELECT 1 FROM taken AS k WHERE k.trajectory_id = t.trajectory_id)
    AND NOT EXISTS (
        SELECT 1
        FROM groups.groups AS g
        WHERE
            g.trajectory_id = t.trajectory_id
            AND g."role" = 'member'
            AND (
                NOT EXISTS (SELECT 1 FROM groups.stale AS s WHERE s.group_id = g.group_id)
                OR EXISTS (SELECT 1 FROM batches.consumed AS c WHERE c.group_id = g.group_id)
            )
    )
ORDER BY num_waiting
