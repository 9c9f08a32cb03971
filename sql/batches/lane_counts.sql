-- A night's lanes and reasons, counted.
SELECT
    lane,
    lane_reason,
    count(*) AS num_trajectories
FROM batches.lanes
WHERE night = $night
GROUP BY lane, lane_reason
ORDER BY lane, lane_reason
