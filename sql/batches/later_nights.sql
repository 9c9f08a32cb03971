-- Nights after this one that have sorted trajectories into lanes.
SELECT DISTINCT night
FROM batches.lanes
WHERE night > $night
ORDER BY night
