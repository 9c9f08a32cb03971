-- Groups that can be sealed now, one row each: trajectories of one task, context, policy family, band of versions and
-- window that are in no sealed group, but for stale ones that no batch consumed, and hold no answer that trained (I14), cut by
-- sorted id. A full cut is sealed always, the rest of a window (two or more) when the window is over. A night that judges seals
-- what can teach something now: what the logged outcomes tell apart ($outcomes: they count), what some other verifier may tell
-- apart ($verified), or as many as a judge can order.
-- Bands: versions on tonight's parent chain are cut into runs of max_policy_lag + 1 by their depth, so that no two members
-- are further apart than the lag; a depth never changes, so late siblings find the same bands. Other versions stand alone.
-- Handed in: depths (policy_version, depth), taken (trajectory_id). Parameters: $size, $min_judged, $window_days, $max_policy_lag,
-- $strict, $masked, $judged, $outcomes, $verified, $night.
WITH bound AS (
    SELECT g.trajectory_id
    FROM groups.groups AS g
    WHERE
        g."role" = 'member'
        AND (
            NOT EXISTS (SELECT 1 FROM groups.stale AS s WHERE s.group_id = g.group_id)
            OR EXISTS (SELECT 1 FROM batches.consumed AS c WHERE c.group_id = g.group_id)
        )
    UNION ALL
    SELECT k.trajectory_id FROM taken AS k
),
waiting AS (
    SELECT
        t.trajectory_id,
        t.task_key,
        t.outcome,
        CASE WHEN $strict THEN t.context_key ELSE '' END AS context,
        t.policy_family,
        coalesce(CAST(floor(d.depth / ($max_policy_lag + 1)) AS VARCHAR), t.policy_version, '') AS band,
        CAST(floor(date_diff('day', DATE '1970-01-01', CAST(t.day AS DATE)) / $window_days) AS BIGINT) AS window_number
    FROM trajectories.trajectories AS t
    LEFT JOIN depths AS d ON d.policy_version = t.policy_version
    WHERE
        t.purpose IN ('production', 'top_up')
        AND t.fault IS NULL
        AND NOT ($masked AND coalesce(t.truncated, false))
        AND NOT EXISTS (SELECT 1 FROM bound AS b WHERE b.trajectory_id = t.trajectory_id)
),
numbered AS (
    SELECT
        *,
        row_number() OVER (
            PARTITION BY task_key, context, policy_family, band, window_number ORDER BY trajectory_id
        ) - 1 AS place
    FROM waiting
),
cuts AS (
    SELECT
        task_key,
        context,
        policy_family,
        window_number,
        list(trajectory_id ORDER BY trajectory_id) AS trajectory_ids,
        min(trajectory_id) AS first_id,
        coalesce(max(outcome) > min(outcome), false) AS differ
    FROM numbered
    GROUP BY task_key, context, policy_family, band, window_number, place // $size
    HAVING count(*) >= 2
),
reasoned AS (
    SELECT
        *,
        CASE
            WHEN len(trajectory_ids) = $size THEN 'full'
            WHEN (window_number + 1) * $window_days <= date_diff('day', DATE '1970-01-01', CAST($night AS DATE)) THEN 'closed'
            WHEN $judged AND ((differ AND $outcomes) OR $verified OR len(trajectory_ids) >= $min_judged) THEN 'judged'
        END AS seal_reason
    FROM cuts
)
SELECT
    task_key,
    context,
    policy_family,
    strftime(DATE '1970-01-01' + CAST(window_number * $window_days AS INTEGER), '%Y-%m-%d') AS "window",
    seal_reason,
    trajectory_ids
FROM reasoned
WHERE seal_reason IS NOT NULL
ORDER BY task_key, context, policy_family, "window", first_id
