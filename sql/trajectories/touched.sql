-- Bundles to build: those of an unaccounted record, and all that have a record, a trajectory or a duplicate on one of the asked
-- days, and of an older lake those whose attempts have no rollout yet. `built`: some row was made of it before. `num_bytes` is
-- the stored text of its records.
-- Handed in: unaccounted (bundle_key), asked (day).
WITH made AS (
    SELECT bundle_key, day FROM trajectories.trajectories
    UNION
    SELECT bundle_key, day FROM trajectories.duplicates
    UNION
    SELECT bundle_key, day FROM trajectories.rollouts
),
wanted AS (
    SELECT u.bundle_key FROM unaccounted AS u
    UNION
    SELECT r.bundle_key FROM landing.records AS r WHERE r.skip_reason IS NULL AND r.day IN (SELECT a.day FROM asked AS a)
    UNION
    SELECT m.bundle_key FROM made AS m WHERE m.day IN (SELECT a.day FROM asked AS a)
    UNION
    SELECT t.bundle_key
    FROM trajectories.trajectories AS t
    WHERE
        t.bundle_key NOT IN (SELECT r.bundle_key FROM trajectories.rollouts AS r)
        AND t.bundle_key IN (SELECT r.bundle_key FROM landing.records AS r WHERE r.skip_reason IS NULL)
)
SELECT
    w.bundle_key,
    w.bundle_key IN (SELECT m.bundle_key FROM made AS m) AS built,
    CAST(coalesce(sum(strlen(r.raw)), 0) AS BIGINT) AS num_bytes
FROM wanted AS w
LEFT JOIN landing.records AS r ON r.bundle_key = w.bundle_key AND r.skip_reason IS NULL
GROUP BY w.bundle_key
ORDER BY w.bundle_key
