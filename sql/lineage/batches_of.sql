-- Groups that some trajectories are members of, and the batches that consumed those groups (null where none did).
-- Handed in: asked (trajectory_id).
SELECT g.trajectory_id, g.group_id, c.batch_id
FROM groups.groups AS g
LEFT JOIN batches.consumed AS c ON c.group_id = g.group_id
WHERE g."role" = 'member' AND g.trajectory_id IN (SELECT a.trajectory_id FROM asked AS a)
ORDER BY g.trajectory_id, g.group_id, c.batch_id
