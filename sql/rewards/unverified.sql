-- Attempts that a verifier has not answered yet under its hash, as what they are now: what was verified before a group of the
-- attempt became stale may read otherwise since (`times`). `turns` only for verifiers that read them.
WITH members AS (
    SELECT
        awaiting.trajectory_id,
        CAST(count(DISTINCT stale.group_id) AS INTEGER) AS times
    FROM awaiting
    LEFT JOIN groups.groups AS sealed ON sealed.trajectory_id = awaiting.trajectory_id AND sealed.role = 'member'
    LEFT JOIN groups.stale AS stale ON stale.group_id = sealed.group_id
    WHERE awaiting.role = 'member' AND NOT awaiting.fault
    GROUP BY awaiting.trajectory_id
)

SELECT
    checks.verifier,
    checks.verifier_hash,
    attempts.trajectory_id,
    attempts.task_id,
    attempts.outcome,
    members.times,
    CASE WHEN checks.reads_turns THEN attempts.turns END AS turns
FROM members
INNER JOIN trajectories.trajectories AS attempts ON attempts.trajectory_id = members.trajectory_id
CROSS JOIN checks
ANTI JOIN rewards.verdicts AS known
    ON
        known.trajectory_id = attempts.trajectory_id
        AND known.verifier = checks.verifier
        AND known.verifier_hash = checks.verifier_hash
        AND coalesce(known.times, 0) = members.times
ORDER BY checks.verifier, attempts.trajectory_id
