-- Answers of the trajectories that are made now which an attempt of another bundle owns. An answer is owned by the bundle of
-- the attempt that began first by its own log (of equals that which ended first, then the smallest id).
-- Handed in: made (trajectory_id, bundle_key, format, started_at, ended_at, call_ids), asked (bundle_key: those of `made`).
WITH named AS (
    SELECT DISTINCT format, unnest(call_ids) AS call_id FROM made
),
claims AS (
    SELECT trajectory_id, bundle_key, format, started_at, ended_at, unnest(call_ids) AS call_id FROM made
    UNION ALL
    SELECT c.trajectory_id, c.bundle_key, c.format, c.started_at, c.ended_at, c.call_id
    FROM (
        SELECT trajectory_id, bundle_key, format, started_at, ended_at, unnest(call_ids) AS call_id
        FROM trajectories.trajectories
    ) AS c
    SEMI JOIN named AS n ON n.format = c.format AND n.call_id = c.call_id
    ANTI JOIN asked AS a ON a.bundle_key = c.bundle_key
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
)
SELECT c.trajectory_id, c.call_id, o.owner_id
FROM claims AS c
INNER JOIN owners AS o ON o.format = c.format AND o.call_id = c.call_id
WHERE c.bundle_key <> o.bundle_key AND c.bundle_key IN (SELECT a.bundle_key FROM asked AS a)
ORDER BY c.trajectory_id, c.call_id
