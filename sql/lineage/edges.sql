-- Every edge from checkpoints to the log lines they learned from. The members of a batch are those of its frozen rows;
-- where a batch's folder is gone, those that the lanes of its night name.
-- Handed in: trained (checkpoint_id, batch_id), frozen (batch_id, group_id, trajectory_id).
WITH members AS (
    SELECT DISTINCT f.batch_id, f.group_id, f.trajectory_id FROM frozen AS f
    UNION
    SELECT l.batch_id, l.group_id, l.trajectory_id
    FROM batches.lanes AS l
    WHERE l.batch_id IN (SELECT t.batch_id FROM trained AS t) AND l.batch_id NOT IN (SELECT f.batch_id FROM frozen AS f)
),
provenance AS (
    SELECT t.trajectory_id, unnest(t.record_ids) AS record_id
    FROM trajectories.trajectories AS t
    WHERE t.trajectory_id IN (SELECT m.trajectory_id FROM members AS m)
)
SELECT c.checkpoint_id, m.batch_id, m.group_id, m.trajectory_id, p.record_id, r.source, r.line
FROM trained AS c
INNER JOIN members AS m ON m.batch_id = c.batch_id
LEFT JOIN provenance AS p ON p.trajectory_id = m.trajectory_id
LEFT JOIN landing.records AS r ON r.record_id = p.record_id
ORDER BY c.checkpoint_id, m.batch_id, m.group_id, m.trajectory_id, r.source, r.line, p.record_id
