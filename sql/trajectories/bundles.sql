-- The records of the asked bundles. `stands` is the record that represents those of the same bundle with the same content (the
-- smallest id); the others are duplicates.
-- Handed in: asked (bundle_key).
SELECT
    r.bundle_key,
    r.day,
    r.format,
    r.parser_version,
    r.record_id,
    first_value(r.record_id) OVER (PARTITION BY r.bundle_key, r.content_id ORDER BY r.record_id) AS stands,
    r.source,
    r.byte_start,
    r.raw,
    r.identities
FROM landing.records AS r
WHERE r.skip_reason IS NULL AND r.bundle_key IN (SELECT a.bundle_key FROM asked AS a)
ORDER BY r.bundle_key, r.record_id
