-- One verdict per awaiting member: the minimum over the verifiers that can tell something about its group.
-- A verifier that has nothing to say about any sibling is left out; one that can tell about some leaves the others
-- without a verdict, because siblings measured by different tests must not be compared.
-- What counts is the verdict on an attempt as it is now (`times`: see unverified.sql).
-- Handed in: awaiting, checks, fallen (trajectory_id, times).
WITH answers AS (
    SELECT
        awaiting.group_id,
        awaiting.trajectory_id,
        checks.verifier,
        verdicts.verifier_score,
        coalesce(starts_with(verdicts.reason, 'failed'), false) AS failed
    FROM awaiting
    CROSS JOIN checks
    LEFT JOIN fallen ON fallen.trajectory_id = awaiting.trajectory_id
    LEFT JOIN rewards.verdicts AS verdicts
        ON
            verdicts.trajectory_id = awaiting.trajectory_id
            AND verdicts.verifier = checks.verifier
            AND verdicts.verifier_hash = checks.verifier_hash
            AND coalesce(verdicts.times, 0) = coalesce(fallen.times, 0)
    WHERE awaiting.role = 'member' AND NOT awaiting.fault
),

telling AS (
    SELECT
        group_id,
        verifier
    FROM answers
    GROUP BY group_id, verifier
    HAVING bool_or(failed OR verifier_score IS NOT NULL)
),

verdict AS (
    SELECT
        answers.group_id,
        answers.trajectory_id,
        CASE WHEN count(*) = count(answers.verifier_score) THEN min(answers.verifier_score) END AS verifier_score,
        bool_or(answers.failed) AS verifier_failed
    FROM answers
    INNER JOIN telling ON telling.group_id = answers.group_id AND telling.verifier = answers.verifier
    GROUP BY answers.group_id, answers.trajectory_id
)

SELECT
    awaiting.group_id,
    awaiting.trajectory_id,
    awaiting."window",
    awaiting.fault,
    verdict.verifier_score,
    coalesce(verdict.verifier_failed, false) AS verifier_failed
FROM awaiting
LEFT JOIN verdict ON verdict.group_id = awaiting.group_id AND verdict.trajectory_id = awaiting.trajectory_id
WHERE awaiting.role = 'member'
ORDER BY awaiting.group_id, awaiting.trajectory_id
