-- Rollouts of other bundles that share a name of an answer, or an attempt key, with some rollouts.
-- Handed in: wanted (names, attempt_key), known (bundle_key: bundles that are looked at already).
WITH wanted_names AS (
    SELECT DISTINCT unnest(names) AS name FROM wanted
),
named AS (
    SELECT trajectory_id, unnest(names) AS name FROM trajectories.rollouts
),
sharing AS (
    SELECT DISTINCT n.trajectory_id FROM named AS n SEMI JOIN wanted_names AS w ON w.name = n.name
),
bundles AS (
    SELECT bundle_key
    FROM trajectories.rollouts
    WHERE
        trajectory_id IN (SELECT s.trajectory_id FROM sharing AS s)
        OR attempt_key IN (SELECT w.attempt_key FROM wanted AS w WHERE w.attempt_key IS NOT NULL)
    EXCEPT
    SELECT bundle_key FROM known
)
SELECT r.* EXCLUDE (facts)
FROM trajectories.rollouts AS r
WHERE r.bundle_key IN (SELECT b.bundle_key FROM bundles AS b)
ORDER BY r.trajectory_id
