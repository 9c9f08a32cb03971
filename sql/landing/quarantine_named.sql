-- Ids of what `nightshift quarantine` lists that begin with $prefix, the first $num_ids, each with how many there are in all.
WITH ids AS (
    SELECT record_id AS id FROM landing.quarantine WHERE starts_with(record_id, $prefix)
    UNION
    SELECT record_id AS id FROM trajectories.duplicates WHERE kind = 'unreadable' AND starts_with(record_id, $prefix)
)
SELECT id, count(*) OVER () AS num_named
FROM ids
ORDER BY id
LIMIT $num_ids
