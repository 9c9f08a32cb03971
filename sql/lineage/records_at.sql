-- What a line of a log became: the records that begin there and the trajectory that each is in or that stands for it.
-- Handed in: files (source). Parameter: $line.
WITH places AS (
    SELECT unnest(record_ids) AS record_id, trajectory_id, FALSE AS is_duplicate FROM trajectories.trajectories
    UNION ALL
    SELECT record_id, trajectory_id, TRUE AS is_duplicate FROM trajectories.duplicates
)
SELECT r.record_id, r.source, r.line, r.skip_reason, p.trajectory_id, p.is_duplicate
FROM landing.records AS r
LEFT JOIN places AS p ON p.record_id = r.record_id
WHERE r.line = $line AND r.source IN (SELECT f.source FROM files AS f)
ORDER BY r.source, r.record_id, p.trajectory_id
