-- Days to rebuild: every day of the attempts that some unaccounted record belongs to, so that an attempt whose day moves
-- leaves the old day and enters the new one in the same commit. Handed in: unaccounted (record_id, attempt_key).
SELECT DISTINCT r.day
FROM landing.records AS r
WHERE r.attempt_key IN (SELECT u.attempt_key FROM unaccounted AS u)
ORDER BY r.day
