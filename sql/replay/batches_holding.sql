-- Frozen batches with attempts whose log stands under other rules than those in force, or was redacted since they were frozen
-- (its token ids are gone): their rows may spell what is or will be redacted. Parameter: $under.
WITH frozen AS (
    SELECT DISTINCT batch_id, trajectory_id FROM batches.lanes WHERE batch_id IS NOT NULL
),
logged AS (
    SELECT trajectory_id, exact_tokens, unnest(record_ids) AS record_id FROM trajectories.trajectories
)
SELECT f.batch_id, count(DISTINCT f.trajectory_id) AS num_trajectories
FROM frozen AS f
INNER JOIN logged AS l ON l.trajectory_id = f.trajectory_id
INNER JOIN landing.records AS r ON r.record_id = l.record_id
WHERE r.rules IS DISTINCT FROM $under OR (r.identities IS NOT NULL AND NOT l.exact_tokens)
GROUP BY f.batch_id
ORDER BY f.batch_id
