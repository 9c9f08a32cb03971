-- Rows of groups/near for train tasks that were found to be near-copies of held-out or audit tasks, each with the most similar
-- of them, but for those that are known as such already.
-- Handed in: found (task_key, near_key, similarity). Parameter: $night.
WITH trained AS (
    SELECT DISTINCT g.task_key
    FROM groups.groups AS g
    SEMI JOIN batches.consumed AS c ON c.group_id = g.group_id
    WHERE g.task_key IN (SELECT f.task_key FROM found AS f)
),
best AS (
    SELECT f.task_key, f.near_key, f.similarity
    FROM found AS f
    ANTI JOIN groups.near AS n ON n.task_key = f.task_key
    QUALIFY row_number() OVER (PARTITION BY f.task_key ORDER BY f.similarity DESC, f.near_key) = 1
)
SELECT
    b.task_key,
    b.near_key,
    s.split AS near_split,
    b.similarity,
    t.task_key IS NOT NULL AS trained,
    $night AS night
FROM best AS b
INNER JOIN groups.splits AS s ON s.task_key = b.near_key
LEFT JOIN trained AS t ON t.task_key = b.task_key
ORDER BY b.task_key
