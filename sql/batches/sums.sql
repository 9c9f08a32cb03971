-- Of each group with spread the sums that its advantages are made of, in integers, whatever the order or the number of threads:
-- `total` of its rewards, and `scatter`, n * sum of squares - square of the sum, which is n^2 times the variance.
-- Sums are taken in 128 bits; what does not fit into 64 stops the query (n * (max - min) at 6e9 units of 1e-6 and above).
-- Members stand as lists, so that groups are sorted and not rows. Handed in: rewarded (group_id, trajectory_id, reward).
SELECT
    group_id,
    list_sort(list({'trajectory_id': trajectory_id, 'reward': reward})) AS members,
    CAST(sum(reward) AS BIGINT) AS total,
    CAST(count(*) * sum(reward * reward) - sum(reward) * sum(reward) AS BIGINT) AS scatter
FROM rewarded
GROUP BY group_id
HAVING max(reward) - min(reward) > $min_spread
ORDER BY group_id
