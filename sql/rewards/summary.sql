-- Counts over some rewards: groups by verdicts and spread, sums for the means.
WITH per_group AS (
    SELECT
        group_id,
        count(*) FILTER (WHERE passed) AS num_passed,
        count(passed) AS num_verdicts,
        count(reward) > 1 AND max(reward) - min(reward) > $min_spread AS has_spread
    FROM rows_added
    GROUP BY group_id
)
SELECT
    count(*) AS num_groups,
    count(*) FILTER (WHERE num_passed > 0 AND num_passed < num_verdicts) AS groups_mixed,
    count(*) FILTER (WHERE num_verdicts > 0 AND num_passed = num_verdicts) AS groups_all_pass,
    count(*) FILTER (WHERE num_verdicts > 0 AND num_passed = 0) AS groups_all_fail,
    count(*) FILTER (WHERE has_spread) AS groups_with_spread,
    (SELECT sum(reward) FROM rows_added) AS sum_rewards,
    (SELECT count(reward) FROM rows_added) AS num_rewards,
    (SELECT count(*) FILTER (WHERE passed) FROM rows_added) AS num_passed,
    (SELECT count(passed) FROM rows_added) AS num_verdicts
FROM per_group
ORDER BY num_groups
