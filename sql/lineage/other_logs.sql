-- Lines of other logs that tell the same attempt as a trajectory, or its beginning. Parameter: $trajectory_id.
SELECT d.kind, d.similarity, r.format, r.source AS file, r.line
FROM trajectories.duplicates AS d
INNER JOIN landing.records AS r ON r.record_id = d.record_id
WHERE d.trajectory_id = $trajectory_id AND d.kind IN ('other_log', 'unfinished')
ORDER BY r.source, r.line, d.record_id
