-- The log lines of some trajectories. Handed in: asked (trajectory_id).
SELECT t.trajectory_id, t.record_id, r.source, r.line
FROM (
    SELECT trajectory_id, unnest(record_ids) AS record_id
    FROM trajectories.trajectories
    WHERE trajectory_id IN (SELECT a.trajectory_id FROM asked AS a)
) AS t
LEFT JOIN landing.records AS r ON r.record_id = t.record_id
ORDER BY t.trajectory_id, r.source, r.line, t.record_id
