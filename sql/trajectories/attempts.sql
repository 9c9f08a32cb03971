-- The records of every attempt whose day is one of the asked: an attempt's day is that of its last record. `stands` is the
-- record that represents those of the same attempt with the same content (the smallest id); the others are duplicates.
-- Handed in: asked (day).
WITH kept AS (
    SELECT
        r.attempt_key,
        max(r.day) OVER (PARTITION BY r.attempt_key) AS day,
        r.format,
        r.record_id,
        first_value(r.record_id) OVER (PARTITION BY r.attempt_key, r.content_id ORDER BY r.record_id) AS stands,
        r.content_id,
        r.source,
        r.raw
    FROM landing.records AS r
    WHERE r.skip_reason IS NULL
)
SELECT attempt_key, day, format, record_id, stands, content_id, source, raw
FROM kept
WHERE day IN (SELECT a.day FROM asked AS a)
ORDER BY attempt_key, record_id
