-- Records that are not in exactly one place (I1): a trajectory's provenance, duplicates, quarantine or skipped.
WITH landed AS (
    SELECT record_id FROM landing.records
    UNION
    SELECT record_id FROM landing.quarantine
),
placed AS (
    SELECT DISTINCT unnest(record_ids) AS record_id, 'trajectories' AS place FROM trajectories.trajectories
    UNION ALL
    SELECT record_id, 'duplicates' AS place FROM trajectories.duplicates
    UNION ALL
    SELECT record_id, 'quarantine' AS place FROM landing.quarantine
    UNION ALL
    SELECT record_id, 'skipped' AS place FROM landing.records WHERE skip_reason IS NOT NULL
),
places AS (
    SELECT
        coalesce(landed.record_id, placed.record_id) AS record_id,
        CASE
            WHEN landed.record_id IS NULL THEN 'not landed'
            WHEN count(placed.place) = 0 THEN 'in no trajectory'
            WHEN count(placed.place) > 1 THEN string_agg(placed.place, ' and ' ORDER BY placed.place)
        END AS problem
    FROM landed
    FULL JOIN placed ON placed.record_id = landed.record_id
    GROUP BY landed.record_id, placed.record_id
)
SELECT problem, count(*)::BIGINT AS num_records, min(record_id) AS example
FROM places
WHERE problem IS NOT NULL
GROUP BY problem
ORDER BY problem
