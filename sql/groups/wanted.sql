-- Tasks of the train split from which our own policy learned nothing so far, the most useful first.
-- A task is wanted where no attempt at it is our own policy's (`other_policy`: the way in for a log that another model made),
-- where our own attempts are in no group, or where all their sealed groups have equal rewards. Attempts of which each ran under
-- another context are no siblings under the strict rule, and a top-up that asks under another context than production finds
-- none: `context_mismatch`. A group without rewards yet is not known to lack spread. Where no policy was seen at work
-- (demonstrations: no turn is sampled), there is nothing to do better. What counts as an attempt is what stage 3 would train
-- on but for its policy: held-out, audited and faulted ones do not.
--
-- score = need * uncertain * recent * often, each in thousandths, divided by the task's place among its near-copies:
--   need       1000 other_policy, 750 no_siblings (few rollouts make a group), 500 no_spread, 250 context_mismatch
--   uncertain  4p(1-p) where p = (1 + passes) / (2 + known attempts): 1000 where nothing is known, 889 after one attempt, 360 after
--              eight equal ones. What other models came to counts like two attempts at most: it says little about our policy.
--              Below 125 (some 30 equal attempts) a task is wanted no more.
--   recent     7 / (7 + days since production asked it last)
--   often      1000, and 250 more for each doubling of how often production asked it, 8 times at most
--
-- num_waiting: own attempts that tomorrow's top-up would find unsealed in its window, under one context, in the champion's band.
-- Handed in: eligible (groups/eligibility), depths (policy_version, depth), clusters (task_key, cluster: near-copies share one;
-- may be empty); of the windows in which production asked something lately (groups.wanted_days). Parameters: $night, $rubric_hash, $min_spread and $pass_at (1e-6), $strict, $policy, $policy_version (the
-- champion's), $window_days, $max_policy_lag.
WITH in_force AS (
    SELECT group_id, trajectory_id, reward, passed, sequence
    FROM rewards.rewards
    WHERE rubric_hash = $rubric_hash
    QUALIFY row_number() OVER (PARTITION BY group_id, trajectory_id ORDER BY sequence DESC, reward_key) = 1
),
verdicts AS (
    SELECT trajectory_id, arg_max(passed, (sequence, group_id)) AS passed
    FROM in_force
    WHERE passed IS NOT NULL
    GROUP BY trajectory_id
),
attempts AS (
    SELECT
        t.trajectory_id,
        t.task_key,
        t.task_id,
        t.harness,
        t.purpose,
        t.day,
        CASE WHEN $strict THEN coalesce(t.context_key, '') ELSE '' END AS context,
        t.policy_family IS NOT DISTINCT FROM $policy AS is_own,
        coalesce(v.passed, t.outcome >= $pass_at) AS passed,
        floor(d.depth / ($max_policy_lag + 1)) AS band
    FROM trajectories.trajectories AS t
    INNER JOIN eligible AS e ON e.trajectory_id = t.trajectory_id
    LEFT JOIN verdicts AS v ON v.trajectory_id = t.trajectory_id
    LEFT JOIN depths AS d ON d.policy_version = t.policy_version
    WHERE
        t.purpose IN ('production', 'top_up')
        AND t.fault IS NULL
        AND t.num_sampled_turns > 0
        -- a list of what may be, so that whatever else keeps an attempt out of training keeps its task out of here
        AND (
            e.eligible_for IN ('grpo', 'grpo_recomputed', 'sft')
            OR e.eligible_reason IN ('unknown_policy_version', 'off_line', 'stale', 'too_old')
        )
),
tasks AS (
    SELECT
        task_key,
        min(task_id) AS task_id,
        min(harness) AS harness,
        count(*) AS num_attempts,
        count(*) FILTER (WHERE is_own) AS num_own,
        count(DISTINCT context) FILTER (WHERE is_own) AS num_own_contexts,
        count(*) FILTER (WHERE purpose = 'production') AS num_production,
        coalesce(max(day) FILTER (WHERE purpose = 'production'), max(day)) AS last_day,
        count(passed) FILTER (WHERE is_own) AS own_known,
        count(*) FILTER (WHERE is_own AND passed) AS own_passed,
        count(passed) FILTER (WHERE NOT is_own) AS other_known,
        count(*) FILTER (WHERE NOT is_own AND passed) AS other_passed
    FROM attempts
    GROUP BY task_key
),
-- tasks whose top-ups all ran under contexts that production never asked it under
apart AS (
    SELECT task_key
    FROM (
        SELECT
            task_key,
            context,
            bool_or(purpose = 'top_up') AS topped_up,
            bool_or(purpose = 'production') AS produced
        FROM attempts
        GROUP BY task_key, context
    )
    GROUP BY task_key
    HAVING bool_or(topped_up) AND bool_or(produced) AND NOT bool_or(topped_up AND produced)
),
bound AS (
    SELECT g.trajectory_id
    FROM groups.groups AS g
    WHERE g."role" = 'member' AND NOT EXISTS (SELECT 1 FROM groups.stale AS s WHERE s.group_id = g.group_id)
),
waiting AS (
    SELECT task_key, max(num_alike) AS num_waiting
    FROM (
        SELECT a.task_key, count(*) AS num_alike
        FROM attempts AS a
        ANTI JOIN bound AS b ON b.trajectory_id = a.trajectory_id
        WHERE
            a.is_own
            AND a.band = (SELECT floor(max(c.depth) / ($max_policy_lag + 1)) FROM depths AS c WHERE c.policy_version = $policy_version)
            AND floor(date_diff('day', DATE '1970-01-01', CAST(a.day AS DATE)) / $window_days)
            = floor((date_diff('day', DATE '1970-01-01', CAST($night AS DATE)) + 1) / $window_days)
        GROUP BY a.task_key, a.context
    )
    GROUP BY task_key
),
spreads AS (
    SELECT group_id, max(reward) - min(reward) > $min_spread AS has_spread
    FROM in_force
    GROUP BY group_id
),
sealed AS (
    SELECT g.task_key, count(*) AS num_groups, count(*) FILTER (WHERE NOT p.has_spread) AS num_flat
    FROM (
        SELECT DISTINCT group_id, task_key
        FROM groups.groups
        WHERE "role" = 'member' AND policy_family IS NOT DISTINCT FROM $policy
    ) AS g
    ANTI JOIN groups.stale AS stale ON stale.group_id = g.group_id
    LEFT JOIN spreads AS p ON p.group_id = g.group_id
    GROUP BY g.task_key
),
reasoned AS (
    SELECT
        t.*,
        CASE
            WHEN t.num_own = 0 THEN 'other_policy'
            WHEN t.task_key IN (SELECT a.task_key FROM apart AS a) THEN 'context_mismatch'
            WHEN g.task_key IS NOT NULL THEN 'no_spread'
            WHEN $strict AND t.num_own > 1 AND t.num_own_contexts = t.num_own THEN 'context_mismatch'
            ELSE 'no_siblings'
        END AS reason,
        coalesce(w.num_waiting, 0) AS num_waiting,
        -- in thousandths of an attempt; wide, since products of counts grow
        CAST(1000 + 1000 * own_passed AS HUGEINT)
        + CASE WHEN other_known = 0 THEN 0 ELSE 1000 * least(other_known, 2) * other_passed // other_known END AS num_passes,
        CAST(2000 + 1000 * (own_known + least(other_known, 2)) AS HUGEINT) AS num_known,
        7000 // (7 + greatest(0, date_diff('day', CAST(t.last_day AS DATE), CAST($night AS DATE)))) AS recent,
        1000 + 250 * least(8, greatest(0, length(bin(t.num_production)) - 1)) AS often
    FROM tasks AS t
    INNER JOIN groups.splits AS s ON s.task_key = t.task_key AND s.split = 'train'
    LEFT JOIN sealed AS g ON g.task_key = t.task_key
    LEFT JOIN waiting AS w ON w.task_key = t.task_key
    WHERE t.num_own = 0 OR g.task_key IS NULL OR g.num_groups = g.num_flat
),
weighed AS (
    SELECT *, 4000 * num_passes * (num_known - num_passes) // (num_known * num_known) AS uncertain
    FROM reasoned
),
scored AS (
    SELECT
        w.*,
        CASE w.reason WHEN 'other_policy' THEN 1000 WHEN 'no_siblings' THEN 750 WHEN 'no_spread' THEN 500 ELSE 250 END
        * w.uncertain * w.recent * w.often // 1000000000 AS alone,
        coalesce(c.cluster, w.task_key) AS cluster
    FROM weighed AS w
    LEFT JOIN clusters AS c ON c.task_key = w.task_key
    WHERE w.uncertain >= 125
),
placed AS (
    SELECT
        *,
        CAST(
            alone // row_number() OVER (PARTITION BY cluster ORDER BY alone DESC, num_attempts, last_day DESC, task_key) AS BIGINT
        ) AS score
    FROM scored
)
SELECT
    task_key,
    task_id,
    harness,
    reason,
    num_attempts,
    num_own,
    num_waiting,
    score,
    row_number() OVER (ORDER BY score DESC, num_attempts, last_day DESC, task_key) AS "rank",
    $night AS night
FROM placed
ORDER BY "rank"
