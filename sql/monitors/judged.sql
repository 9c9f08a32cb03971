-- What the judge was asked on a night: groups, those without any usable reply, what it cost.
WITH per_group AS (
    SELECT
        group_id,
        bool_or(status = 'ok') AS usable,
        sum(cost_usd) AS cost_usd
    FROM rewards.judgements
    WHERE night = $night
    GROUP BY group_id
)
SELECT
    count(*) AS num_groups,
    count(*) FILTER (WHERE NOT usable) AS num_failed,
    sum(cost_usd) AS cost_usd
FROM per_group
ORDER BY num_groups
