-- Ids of trajectories, groups, batches and checkpoints that begin with $prefix, the first $num_ids of them, each with how many
-- there are in all. Handed in: folders (id): batches that are frozen and not consumed yet.
WITH ids AS (
    SELECT trajectory_id AS id FROM trajectories.trajectories WHERE starts_with(trajectory_id, $prefix)
    UNION
    SELECT group_id AS id FROM groups.groups WHERE starts_with(group_id, $prefix)
    UNION
    SELECT batch_id AS id FROM batches.consumed WHERE starts_with(batch_id, $prefix)
    UNION
    SELECT checkpoint_id AS id FROM checkpoints.checkpoints WHERE starts_with(checkpoint_id, $prefix)
    UNION
    SELECT id FROM folders WHERE starts_with(id, $prefix)
)
SELECT id, count(*) OVER () AS num_named
FROM ids
ORDER BY id
LIMIT $num_ids
