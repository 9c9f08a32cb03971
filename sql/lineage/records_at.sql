-- What became of the pieces of a log at one line: records with the trajectory that each is in or that stands for it, and
-- pieces in quarantine. A piece is there where it begins at $line, or, where a range of bytes is given (else null), where
-- its bytes reach into $byte_start to $byte_end. Handed in: files (source).
WITH pieces AS (
    SELECT record_id, source, line, byte_start, byte_end, skip_reason, NULL AS reason, NULL AS detail
    FROM landing.records
    WHERE source IN (SELECT f.source FROM files AS f)
    UNION ALL
    SELECT record_id, source, line, byte_start, byte_end, NULL AS skip_reason, reason, detail
    FROM landing.quarantine
    WHERE source IN (SELECT f.source FROM files AS f)
),
at_line AS (
    SELECT *
    FROM pieces
    WHERE
        ($byte_start IS NULL AND line = $line)
        OR (byte_start < CAST($byte_end AS BIGINT) AND byte_end > CAST($byte_start AS BIGINT))
),
places AS (
    SELECT unnest(record_ids) AS record_id, trajectory_id, NULL AS kind, NULL AS detail FROM trajectories.trajectories
    UNION ALL
    SELECT record_id, trajectory_id, kind, detail FROM trajectories.duplicates
)
SELECT
    a.record_id,
    a.source,
    a.line,
    CASE
        WHEN a.reason IS NOT NULL THEN 'quarantined'
        WHEN a.skip_reason IS NOT NULL THEN 'skipped'
        WHEN p.record_id IS NULL THEN 'waiting'
        WHEN p.kind = 'unreadable' THEN 'quarantined'
        WHEN p.kind IS NOT NULL THEN 'duplicate'
        ELSE 'trajectory'
    END AS became,
    coalesce(a.reason, a.skip_reason, p.kind) AS reason,
    coalesce(a.detail, p.detail) AS detail,
    p.trajectory_id
FROM at_line AS a
LEFT JOIN places AS p ON p.record_id = a.record_id AND a.reason IS NULL
ORDER BY a.source, a.line, a.byte_start, a.record_id, p.trajectory_id
