-- The day of the newest attempt in production; null where there is none.
SELECT max("day") AS "day"
FROM trajectories.trajectories
WHERE purpose = 'production'
ORDER BY "day"
