-- Records that were redacted under other rules than those in force. Parameter: $rules.
SELECT record_id, bundle_key, day, strlen(raw)::BIGINT AS num_bytes
FROM landing.records
WHERE rules IS DISTINCT FROM $rules
ORDER BY day, record_id
