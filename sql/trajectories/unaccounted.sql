-- Breaches of I1: records that should be in exactly one place (trajectories' provenance, or duplicates) and are not. A record may
-- be in the provenance of several attempts (choices of one answer), but in none of them twice, and a skipped one in none.
-- What landed since the last build shows up here too, which is how a build finds its work.
WITH copies AS (
    SELECT record_id, count(*) AS num_copies
    FROM (SELECT trajectory_id, unnest(record_ids) AS record_id FROM trajectories.trajectories)
    GROUP BY record_id, trajectory_id
),
places AS (
    SELECT record_id, sum(num_places) AS num_places
    FROM (
        SELECT record_id, max(num_copies) AS num_places FROM copies GROUP BY record_id
        UNION ALL
        SELECT record_id, count(*) AS num_places FROM trajectories.duplicates GROUP BY record_id
    )
    GROUP BY record_id
)
SELECT r.record_id, r.bundle_key, r.day, CAST(coalesce(p.num_places, 0) AS INTEGER) AS num_places
FROM landing.records AS r
LEFT JOIN places AS p ON p.record_id = r.record_id
WHERE coalesce(p.num_places, 0) <> CASE WHEN r.skip_reason IS NULL THEN 1 ELSE 0 END
ORDER BY r.record_id
