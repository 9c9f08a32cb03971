-- Rollouts of bundles that share a name of an answer, or an attempt key, with a rollout of another bundle.
WITH named AS (
    SELECT bundle_key, unnest(names) AS name FROM trajectories.rollouts
    UNION ALL
    SELECT bundle_key, attempt_key AS name FROM trajectories.rollouts WHERE attempt_key IS NOT NULL
),
shared AS (
    SELECT name FROM named GROUP BY name HAVING min(bundle_key) <> max(bundle_key)
),
bundles AS (
    SELECT DISTINCT n.bundle_key FROM named AS n SEMI JOIN shared AS s ON s.name = n.name
)
SELECT r.* EXCLUDE (facts)
FROM trajectories.rollouts AS r
WHERE r.bundle_key IN (SELECT b.bundle_key FROM bundles AS b)
ORDER BY r.trajectory_id
