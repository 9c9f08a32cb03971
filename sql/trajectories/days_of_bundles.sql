-- Days on which the asked bundles have rows.
-- Handed in: asked (bundle_key).
SELECT t.day
FROM trajectories.trajectories AS t
WHERE t.bundle_key IN (SELECT a.bundle_key FROM asked AS a)
UNION
SELECT d.day
FROM trajectories.duplicates AS d
WHERE d.bundle_key IN (SELECT a.bundle_key FROM asked AS a)
ORDER BY day
