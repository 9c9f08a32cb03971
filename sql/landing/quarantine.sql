-- Pieces of logs that are no records, newest first; $reason null: of every reason.
SELECT record_id, reason, source, line, byte_start, byte_end, format, detail, day
FROM landing.quarantine
WHERE $reason IS NULL OR reason = $reason
ORDER BY landed_at DESC, source, line, byte_start, record_id
LIMIT $num_rows
