-- Days to rebuild: every day of the attempts that some unaccounted record belongs to, so that an attempt whose day moves
-- leaves the old day and enters the new one in the same commit; and every day on which such a record is to be found now.
-- Handed in: unaccounted (record_id, attempt_key).
SELECT r.day
FROM landing.records AS r
WHERE r.attempt_key IN (SELECT u.attempt_key FROM unaccounted AS u)
UNION
SELECT t.day
FROM (SELECT day, unnest(record_ids) AS record_id FROM trajectories.trajectories) AS t
WHERE t.record_id IN (SELECT u.record_id FROM unaccounted AS u)
UNION
SELECT d.day
FROM trajectories.duplicates AS d
WHERE d.record_id IN (SELECT u.record_id FROM unaccounted AS u)
ORDER BY day
