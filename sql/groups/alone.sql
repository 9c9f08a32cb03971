-- Attempts that are in no group, each with the first reason that holds.
-- Handed in: eligible (rows of sql/groups/eligibility.sql). Parameters: $strict, $window_days.
WITH placed AS (
    SELECT
        trajectory_id,
        task_key,
        context_key,
        policy_family,
        coalesce(CAST(run_key AS VARCHAR), '') AS run_key,
        group_id,
        CASE WHEN $strict THEN context_key ELSE '' END AS context,
        CASE
            WHEN purpose = 'evaluation' THEN 'evaluation_rollout'
            WHEN fault IS NOT NULL THEN 'harness_fault'
            WHEN masked THEN 'truncated'
        END AS no_sibling,
        strftime(
            DATE '1970-01-01'
            + CAST(floor(date_diff('day', DATE '1970-01-01', CAST(day AS DATE)) / $window_days) * $window_days AS INTEGER),
            '%Y-%m-%d'
        ) AS "window"
    FROM eligible
),

-- attempts that could be siblings in a window: per task, per context of it, per policy under that context, per run of that policy
siblings AS (
    SELECT
        "window",
        task_key,
        context_key,
        policy_family,
        run_key,
        count(*) AS num_in_run,
        sum(count(*)) OVER (PARTITION BY "window", task_key, context_key, policy_family) AS num_attempts,
        sum(count(*)) OVER (PARTITION BY "window", task_key, context_key) AS num_in_context,
        sum(count(*)) OVER (PARTITION BY "window", task_key) AS num_of_task
    FROM placed
    WHERE no_sibling IS NULL
    GROUP BY "window", task_key, context_key, policy_family, run_key
),

-- what was sealed: a sibling that comes now is late
sealed AS (
    SELECT DISTINCT
        g.task_key,
        CASE WHEN $strict THEN g.context_key ELSE '' END AS context,
        g.policy_family,
        coalesce(g.run_key, '') AS run_key,
        g."window"
    FROM groups.groups AS g
    ANTI JOIN groups.stale AS s ON s.group_id = g.group_id
    WHERE g."role" = 'member'
)

SELECT
    p.trajectory_id,
    CASE
        WHEN p.no_sibling IS NOT NULL THEN p.no_sibling
        WHEN c.task_key IS NOT NULL THEN 'late'
        WHEN n.num_attempts = 1 AND n.num_in_context > 1 THEN 'other_policy'
        WHEN $strict AND n.num_in_context = 1 AND n.num_of_task > 1 THEN 'context_mismatch'
        WHEN n.num_in_run = 1 AND n.num_attempts > 1 THEN 'other_run'
        ELSE 'no_siblings'
    END AS reason
FROM placed AS p
LEFT JOIN siblings AS n
    ON n.task_key = p.task_key AND n.context_key = p.context_key AND n.policy_family = p.policy_family
    AND n.run_key = p.run_key AND n."window" = p."window"
LEFT JOIN sealed AS c
    ON c.task_key = p.task_key AND c.context = p.context AND c.policy_family = p.policy_family AND c.run_key = p.run_key
    AND c."window" = p."window"
WHERE p.group_id IS NULL
ORDER BY p.trajectory_id
