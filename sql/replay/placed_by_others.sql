-- Records that another parser version than the one in force put where they are (bundle, day, skipped or not); with $every all.
-- Whole bundles: those of $format with a record on the days $first to $last; null: of all.
-- Handed in: current (format, parser_version).
WITH asked AS (
    SELECT DISTINCT bundle_key
    FROM landing.records
    WHERE
        ($format IS NULL OR format = $format)
        AND ($first IS NULL OR day >= $first)
        AND ($last IS NULL OR day <= $last)
)
SELECT r.record_id, r.day, strlen(r.raw)::BIGINT AS num_bytes
FROM landing.records AS r
INNER JOIN current AS c ON c.format = r.format
WHERE
    r.bundle_key IN (SELECT a.bundle_key FROM asked AS a)
    AND ($every OR r.parser_version IS DISTINCT FROM c.parser_version)
ORDER BY r.day, r.record_id
