-- Bundles whose rows say otherwise than all rollouts together (sql/trajectories/resolved.sql): which answers others own, who stands
-- for an attempt, what that one may have taken over. They are built again.
-- Handed in: resolved (its rows, of all rollouts that are connected with one of another bundle).
WITH stored AS (
    SELECT
        bundle_key,
        trajectory_id,
        coalesce(copied_call_ids, []) AS copied_call_ids,
        coalesce(copied_from, []) AS copied_from,
        coalesce(other_logs, []) AS other_logs,
        coalesce(other_told, []) AS other_told
    FROM trajectories.trajectories
),
said AS (
    SELECT *
    FROM stored
    WHERE len(copied_call_ids) > 0 OR len(other_logs) > 0 OR trajectory_id IN (SELECT r.trajectory_id FROM resolved AS r)
),
true_now AS (
    SELECT bundle_key, trajectory_id, copied_call_ids, copied_from, other_logs, other_told
    FROM resolved
    WHERE keeper_id IS NULL
),
left_out AS (
    SELECT DISTINCT bundle_key, trajectory_id, kind, similarity
    FROM trajectories.duplicates
    WHERE kind IN ('other_log', 'unfinished')
),
differing AS (
    (SELECT * FROM true_now EXCEPT SELECT * FROM said)
    UNION
    (SELECT * FROM said EXCEPT SELECT * FROM true_now)
),
bundles AS (
    SELECT bundle_key FROM differing
    UNION
    (
        SELECT l.bundle_key
        FROM left_out AS l
        ANTI JOIN resolved AS r
            ON r.bundle_key = l.bundle_key
            AND r.keeper_id = l.trajectory_id
            AND r.kind = l.kind
            AND r.similarity IS NOT DISTINCT FROM l.similarity
    )
)
SELECT b.bundle_key, CAST(coalesce(sum(strlen(r.raw)), 0) AS BIGINT) AS num_bytes
FROM bundles AS b
LEFT JOIN landing.records AS r ON r.bundle_key = b.bundle_key AND r.skip_reason IS NULL
GROUP BY b.bundle_key
ORDER BY b.bundle_key
