-- Pieces in quarantine that were redacted under other rules than those in force. Parameter: $rules.
SELECT record_id, day, strlen(raw)::BIGINT AS num_bytes
FROM landing.quarantine
WHERE rules IS DISTINCT FROM $rules
ORDER BY day, record_id
