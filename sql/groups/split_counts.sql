-- Tasks by split.
SELECT split, count(*) AS num_tasks
FROM groups.splits
GROUP BY split
ORDER BY split
