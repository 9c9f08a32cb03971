-- Tasks of the train split that taught nothing so far, the most useful first: those whose attempts are in no group, then
-- those whose sealed groups all have equal rewards. Attempts of which each ran under another context are no siblings under
-- the strict rule, however many there are. Fewer attempts first (one more makes a pair), then the most recent.
-- Where no policy was seen at work (demonstrations: no turn is sampled), there is nothing to do better.
-- A group without rewards yet is not known to lack spread. Parameters: $night, $rubric_hash, $min_spread (1e-6), $strict.
WITH attempts AS (
    SELECT
        task_key,
        min(task_id) AS task_id,
        min(harness) AS harness,
        count(*) AS num_attempts,
        count(DISTINCT context_key) AS num_contexts,
        max(day) AS last_day
    FROM trajectories.trajectories
    WHERE purpose IN ('production', 'top_up') AND fault IS NULL AND num_sampled_turns > 0
    GROUP BY task_key
),
in_force AS (
    SELECT
        group_id,
        reward,
        row_number() OVER (PARTITION BY group_id, trajectory_id ORDER BY sequence DESC, reward_key) AS age
    FROM rewards.rewards
    WHERE rubric_hash = $rubric_hash
),
spreads AS (
    SELECT group_id, max(reward) - min(reward) > $min_spread AS has_spread
    FROM in_force
    WHERE age = 1
    GROUP BY group_id
),
sealed AS (
    SELECT g.task_key, count(*) AS num_groups, count(*) FILTER (WHERE NOT p.has_spread) AS num_flat
    FROM (SELECT DISTINCT group_id, task_key FROM groups.groups) AS g
    ANTI JOIN groups.stale AS stale ON stale.group_id = g.group_id
    LEFT JOIN spreads AS p ON p.group_id = g.group_id
    GROUP BY g.task_key
),
wanted AS (
    SELECT
        a.task_key,
        a.task_id,
        a.harness,
        CASE
            WHEN g.task_key IS NOT NULL THEN 'no_spread'
            WHEN $strict AND a.num_attempts > 1 AND a.num_contexts = a.num_attempts THEN 'context_mismatch'
            ELSE 'no_siblings'
        END AS reason,
        a.num_attempts,
        a.last_day
    FROM attempts AS a
    INNER JOIN groups.splits AS s ON s.task_key = a.task_key AND s.split = 'train'
    LEFT JOIN sealed AS g ON g.task_key = a.task_key
    WHERE g.task_key IS NULL OR g.num_groups = g.num_flat
)
SELECT
    task_key,
    task_id,
    harness,
    reason,
    num_attempts,
    row_number() OVER (ORDER BY reason = 'no_spread', num_attempts, last_day DESC, task_key) AS "rank",
    $night AS night
FROM wanted
ORDER BY "rank"
