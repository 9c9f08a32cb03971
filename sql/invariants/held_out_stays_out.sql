-- I8: rows of batches whose task was held out or audited when their group was sealed, or whose attempt was an evaluation. The
-- group's task counts, since a changed rule may join what was trained on with what is held out: from then on both are. An
-- attempt that was held out under a key that the group's task had before breaks it as well.
SELECT DISTINCT batch_rows.trajectory_id AS broken
FROM batch_rows
JOIN trajectories.trajectories AS attempts USING (trajectory_id)
LEFT JOIN groups.groups AS members
    ON members.group_id = batch_rows.group_id AND members.trajectory_id = batch_rows.trajectory_id
LEFT JOIN groups.splits AS splits ON splits.task_key = coalesce(members.task_key, attempts.task_key)
LEFT JOIN trajectories.renamed AS renamed
    ON renamed.trajectory_id = batch_rows.trajectory_id
    AND renamed.task_key = coalesce(members.task_key, attempts.task_key)
    AND NOT EXISTS (  -- rules that were changed back: what was trained before was not held out then
        SELECT 1
        FROM trajectories.renamed AS before
        WHERE
            before.trajectory_id = renamed.trajectory_id
            AND before.former_key = renamed.task_key
            AND before.task_key = renamed.former_key
    )
LEFT JOIN groups.splits AS former ON former.task_key = renamed.former_key
WHERE
    coalesce(splits.split, 'unassigned') <> 'train'
    OR coalesce(former.split, 'train') <> 'train'
    OR attempts.purpose = 'evaluation'
ORDER BY broken
