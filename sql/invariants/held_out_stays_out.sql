-- I8: rows of batches whose task is held out or audited, or whose attempt was an evaluation.
SELECT DISTINCT batch_rows.trajectory_id AS broken
FROM batch_rows
JOIN trajectories.trajectories AS trajectories USING (trajectory_id)
LEFT JOIN groups.splits AS splits USING (task_key)
WHERE coalesce(splits.split, 'unassigned') <> 'train' OR trajectories.purpose = 'evaluation'
ORDER BY broken
