-- Bundles with a trajectory that says otherwise than the claims of all trajectories which of its answers others own, and who
-- (sql/trajectories/owners.sql): an attempt that owns them came later, changed, or is gone. They are built again.
WITH claims AS (
    SELECT trajectory_id, bundle_key, format, started_at, ended_at, unnest(call_ids) AS call_id
    FROM trajectories.trajectories
),
owners AS (
    SELECT
        format,
        call_id,
        first(trajectory_id ORDER BY started_at NULLS LAST, ended_at NULLS LAST, trajectory_id) AS owner_id,
        first(bundle_key ORDER BY started_at NULLS LAST, ended_at NULLS LAST, trajectory_id) AS bundle_key
    FROM claims
    GROUP BY format, call_id
    HAVING count(DISTINCT bundle_key) > 1
),
copied AS (
    SELECT c.bundle_key, c.trajectory_id, c.call_id, o.owner_id
    FROM claims AS c
    INNER JOIN owners AS o ON o.format = c.format AND o.call_id = c.call_id
    WHERE c.bundle_key <> o.bundle_key
),
said AS (
    SELECT bundle_key, trajectory_id, unnest(copied_call_ids) AS call_id, unnest(copied_from) AS owner_id
    FROM trajectories.trajectories
),
differing AS (
    (SELECT * FROM copied EXCEPT SELECT * FROM said)
    UNION
    (SELECT * FROM said EXCEPT SELECT * FROM copied)
),
bundles AS (
    SELECT DISTINCT bundle_key FROM differing
)
SELECT b.bundle_key, CAST(coalesce(sum(strlen(r.raw)), 0) AS BIGINT) AS num_bytes
FROM bundles AS b
LEFT JOIN landing.records AS r ON r.bundle_key = b.bundle_key AND r.skip_reason IS NULL
GROUP BY b.bundle_key
ORDER BY b.bundle_key
