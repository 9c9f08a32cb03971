-- I1: records that are in no place, or in more than one, of: a trajectory's provenance, duplicates, skipped.
-- (Quarantine holds what never became a record.)
WITH places AS (
    SELECT unnest(record_ids) AS record_id, 'trajectories' AS place FROM trajectories.trajectories
    UNION ALL
    SELECT record_id, 'duplicates' AS place FROM trajectories.duplicates
    UNION ALL
    SELECT record_id, 'skipped' AS place FROM landing.records WHERE skip_reason IS NOT NULL
)
SELECT
    records.record_id AS broken,
    count(places.place) AS num_places
FROM landing.records AS records
LEFT JOIN places USING (record_id)
GROUP BY records.record_id
HAVING count(places.place) <> 1
ORDER BY broken
