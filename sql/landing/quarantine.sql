-- Pieces of logs that are no records, and records whose bundle no parser could read (`unreadable`), newest first.
-- $reason null: of every reason.
WITH unreadable AS (
    SELECT record_id, detail FROM trajectories.duplicates WHERE kind = 'unreadable'
),
pieces AS (
    SELECT record_id, reason, source, line, byte_start, byte_end, format, detail, day, landed_at
    FROM landing.quarantine
    UNION ALL
    SELECT
        r.record_id,
        'unreadable' AS reason,
        r.source,
        r.line,
        r.byte_start,
        r.byte_end,
        r.format,
        u.detail,
        r.day,
        r.landed_at
    FROM unreadable AS u
    INNER JOIN landing.records AS r ON r.record_id = u.record_id
)
SELECT record_id, reason, source, line, byte_start, byte_end, format, detail, day
FROM pieces
WHERE $reason IS NULL OR reason = $reason
ORDER BY landed_at DESC, source, line, byte_start, record_id
LIMIT $num_rows
