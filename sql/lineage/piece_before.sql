-- Per file the piece that begins last at or before $line, and the last byte that any piece up to there reaches.
-- Handed in: files (source).
WITH pieces AS (
    SELECT source, line, byte_start, byte_end FROM landing.records
    UNION ALL
    SELECT source, line, byte_start, byte_end FROM landing.quarantine
)
SELECT
    source,
    max(line) AS line,
    max_by(byte_start, (line, byte_start)) AS byte_start,
    max(byte_end) AS byte_end
FROM pieces
WHERE line <= $line AND source IN (SELECT f.source FROM files AS f)
GROUP BY source
ORDER BY source
