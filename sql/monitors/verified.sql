-- Verdicts that a night asked for, and those where the verifier itself broke.
SELECT
    count(*) AS num_verdicts,
    count(*) FILTER (WHERE starts_with(reason, 'failed')) AS num_failed
FROM rewards.verdicts
WHERE night = $night
ORDER BY num_verdicts
