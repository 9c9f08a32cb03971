-- I8: attempts in batches whose task is a near-copy of a held-out or audit task. `broken`: that was known when the batch froze,
-- since the task had not trained before it was found, or the batch is of a later night. Else it was found too late: an evaluation
-- set was named, or its tasks were first run, after a near-copy had trained.
-- Handed in: batch_rows. Parameter: $near_threshold (1e-6).
WITH frozen AS (
    SELECT batch_id, min(night) AS night FROM batches.consumed GROUP BY batch_id
)
SELECT
    batch_rows.trajectory_id,
    bool_or(NOT near.trained OR frozen.night > near.night) AS broken
FROM batch_rows
JOIN trajectories.trajectories AS trajectories ON trajectories.trajectory_id = batch_rows.trajectory_id
JOIN groups.near AS near ON near.task_key = trajectories.task_key AND near.similarity >= $near_threshold
JOIN frozen ON frozen.batch_id = batch_rows.batch_id
GROUP BY batch_rows.trajectory_id
ORDER BY batch_rows.trajectory_id
