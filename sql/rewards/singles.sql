-- Attempts in no group whose verdict decides by itself what they are used for: winners of other models, and of our own policy
-- where its token ids are unknown, are worth learning from without siblings. In the columns of awaiting.sql, each as a group of its own.
-- Handed in: eligible (trajectory_id, eligible_for, split, group_id).
SELECT
    e.trajectory_id AS group_id,
    e.trajectory_id,
    'member' AS "role",
    CAST(NULL AS VARCHAR) AS "window",
    CAST(NULL AS VARCHAR) AS content_id,
    false AS fault
FROM eligible AS e
WHERE e.eligible_for = 'sft' AND e.split = 'train' AND e.group_id IS NULL
ORDER BY e.trajectory_id
