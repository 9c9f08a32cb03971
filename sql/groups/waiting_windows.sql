-- Windows in which something waits for another night although nothing changed ($reasons), and those that the night sorted before.
-- Parameters: $night, $last_night (the last one before it that sorted), $reasons.
SELECT DISTINCT l."window"
FROM batches.lanes AS l
WHERE l.night = $night OR (l.night = $last_night AND list_contains($reasons, l.lane_reason))
ORDER BY l."window"
