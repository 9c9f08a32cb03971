-- Attempts that a verifier has not answered yet under its hash, as what they are now: what was verified before a group of the
-- attempt became stale may read otherwise since (`times`). `turns` only for verifiers that read them.
-- Handed in: awaiting, checks, fallen (trajectory_id, times). Parameter: $window_days.
WITH members AS (
    SELECT DISTINCT
        awaiting.trajectory_id,
        coalesce(fallen.times, 0) AS times
    FROM awaiting
    LEFT JOIN fallen ON fallen.trajectory_id = awaiting.trajectory_id
    WHERE awaiting.role = 'member' AND NOT awaiting.fault
)

SELECT
    checks.verifier,
    checks.verifier_hash,
    attempts.trajectory_id,
    attempts.task_id,
    attempts.outcome,
    members.times,
    strftime(
        DATE '1970-01-01'
        + CAST(floor(date_diff('day', DATE '1970-01-01', CAST(attempts.day AS DATE)) / $window_days) * $window_days AS INTEGER),
        '%Y-%m-%d'
    ) AS "window",
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
