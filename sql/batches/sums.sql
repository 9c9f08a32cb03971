-- Of each member of a group with spread what its advantage is made of, in integers, whatever the order or the number of threads:
-- `centred` is n * reward - sum of rewards, `scatter` is n * sum of squares - square of the sum, which is n^2 times the variance.
-- Sums are taken in 128 bits; what does not fit into 64 stops the query (n * (max - min) at 6e9 units of 1e-6 and above).
-- Handed in: rewarded (group_id, trajectory_id, reward).
WITH sums AS (
    SELECT
        group_id,
        count(*) AS num_members,
        CAST(sum(reward) AS BIGINT) AS total,
        CAST(count(*) * sum(reward * reward) - sum(reward) * sum(reward) AS BIGINT) AS scatter
    FROM rewarded
    GROUP BY group_id
    HAVING max(reward) - min(reward) > $min_spread
)

SELECT
    rewarded.group_id,
    rewarded.trajectory_id,
    sums.num_members * rewarded.reward - sums.total AS centred,
    sums.scatter
FROM rewarded
INNER JOIN sums ON sums.group_id = rewarded.group_id
ORDER BY rewarded.group_id, rewarded.trajectory_id
