-- I14: what is in more than one batch, counting only batches that were not frozen again on purpose: trajectories by their id;
-- and answers by the names that stand with what was consumed (`<name>: <groups>`), unless a trajectory of one of these groups
-- is named already. Within one batch an answer trains in one group. Handed in: batch_rows, and the batches that they are of: only
-- names of these are looked for among all that trained (asked: batch_id).
WITH again AS (
    SELECT DISTINCT batch_id FROM batches.consumed WHERE again
),

twice AS (
    SELECT batch_rows.trajectory_id, list(DISTINCT batch_rows.group_id) AS group_ids
    FROM batch_rows
    ANTI JOIN again ON again.batch_id = batch_rows.batch_id
    GROUP BY batch_rows.trajectory_id
    HAVING count(DISTINCT batch_rows.batch_id) > 1
),

names AS (
    SELECT consumed.group_id, consumed.batch_id, unnest(list_concat(consumed.names, consumed.shared_answers)) AS name
    FROM batches.consumed AS consumed
    ANTI JOIN again ON again.batch_id = consumed.batch_id
),

named_twice AS (
    SELECT names.name, list_sort(list(DISTINCT names.group_id)) AS group_ids
    FROM names
    SEMI JOIN (SELECT n.name FROM names AS n SEMI JOIN asked ON asked.batch_id = n.batch_id) AS wanted ON wanted.name = names.name
    GROUP BY names.name
    HAVING count(DISTINCT group_id || '/' || batch_id) > 1
),

known AS (
    SELECT DISTINCT unnest(group_ids) AS group_id FROM twice
)

SELECT trajectory_id AS broken
FROM twice
UNION ALL
SELECT name || ': ' || array_to_string(group_ids, ', ') AS broken
FROM named_twice
WHERE NOT list_has_any(group_ids, (SELECT coalesce(list(group_id), []) FROM known))
ORDER BY broken
