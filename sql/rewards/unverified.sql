-- Attempts that a verifier has not answered yet under its hash. `turns` only for verifiers that read them.
SELECT
    checks.verifier,
    checks.verifier_hash,
    attempts.trajectory_id,
    attempts.task_id,
    attempts.outcome,
    CASE WHEN checks.reads_turns THEN attempts.turns END AS turns
FROM (SELECT DISTINCT trajectory_id FROM awaiting WHERE role = 'member' AND NOT fault) AS members
INNER JOIN trajectories.trajectories AS attempts ON attempts.trajectory_id = members.trajectory_id
CROSS JOIN checks
ANTI JOIN rewards.verdicts AS known
    ON
        known.trajectory_id = attempts.trajectory_id
        AND known.verifier = checks.verifier
        AND known.verifier_hash = checks.verifier_hash
ORDER BY checks.verifier, attempts.trajectory_id
