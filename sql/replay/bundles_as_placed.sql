-- As trajectories/bundles: the records of the asked bundles, but with some records where a replay would put them.
-- Handed in: asked (bundle_key), placed (record_id, bundle_key, day, skip_reason).
WITH standing AS (
    SELECT r.bundle_key, r.day, r.skip_reason, r.format, r.parser_version, r.record_id, r.content_id, r.source, r.byte_start, r.raw, r.identities
    FROM landing.records AS r
    WHERE r.bundle_key IN (SELECT a.bundle_key FROM asked AS a) AND r.record_id NOT IN (SELECT p.record_id FROM placed AS p)
    UNION ALL
    SELECT p.bundle_key, p.day, p.skip_reason, r.format, r.parser_version, r.record_id, r.content_id, r.source, r.byte_start, r.raw, r.identities
    FROM landing.records AS r
    INNER JOIN placed AS p ON p.record_id = r.record_id
    WHERE p.bundle_key IN (SELECT a.bundle_key FROM asked AS a)
)
SELECT
    bundle_key,
    day,
    format,
    parser_version,
    record_id,
    first_value(record_id) OVER (PARTITION BY bundle_key, content_id ORDER BY record_id) AS stands,
    source,
    byte_start,
    raw,
    identities
FROM standing
WHERE skip_reason IS NULL
ORDER BY bundle_key, record_id
