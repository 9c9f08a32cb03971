-- Breaches of I1: records that should be in exactly one place (a trajectory's provenance, or duplicates) and are not.
-- A skipped record belongs in none. What landed since the last build shows up here too, which is how a build finds its work.
WITH places AS (
    SELECT record_id, count(*) AS num_places
    FROM (
        SELECT unnest(record_ids) AS record_id FROM trajectories.trajectories
        UNION ALL
        SELECT record_id FROM trajectories.duplicates
    )
    GROUP BY record_id
)
SELECT r.record_id, r.attempt_key, r.day, CAST(coalesce(p.num_places, 0) AS INTEGER) AS num_places
FROM landing.records AS r
LEFT JOIN places AS p ON p.record_id = r.record_id
WHERE coalesce(p.num_places, 0) <> CASE WHEN r.skip_reason IS NULL THEN 1 ELSE 0 END
ORDER BY r.record_id
