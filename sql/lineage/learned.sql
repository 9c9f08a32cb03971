-- Checkpoints that learned from some batches: `direct` where the checkpoint's own run trained on one, `parent` where a
-- checkpoint behind it on the parent chain did. Handed in: used (batch_id).
WITH RECURSIVE reached AS (
    SELECT c.checkpoint_id, 0 AS distance
    FROM checkpoints.checkpoints AS c
    WHERE EXISTS (SELECT 1 FROM used AS u WHERE list_contains(c.batches, u.batch_id))
    UNION ALL
    SELECT c.checkpoint_id, r.distance + 1
    FROM reached AS r
    INNER JOIN checkpoints.checkpoints AS c ON c.parent = r.checkpoint_id
)
SELECT
    c.checkpoint_id AS checkpoint,
    c.policy || '@' || c.version AS policy_version,
    c.night,
    CASE WHEN min(r.distance) = 0 THEN 'direct' ELSE 'parent' END AS through
FROM reached AS r
INNER JOIN checkpoints.checkpoints AS c ON c.checkpoint_id = r.checkpoint_id
GROUP BY c.checkpoint_id, c.policy, c.version, c.night
ORDER BY c.version, checkpoint
