-- What each trajectory may be used for, from provenance alone, with the first reason that holds (ARCHITECTURE.md, lanes),
-- beside its split and its sealed group.
-- Handed in: versions (policy_version, lag, held: lag null where it is not on the parent chain of tonight's run; held where its
-- adapter is still there to compute with).
-- Parameters: $policy, $max_policy_lag, $max_age_days (null: any age), $night (null: the day of the newest attempt), $masked,
-- $near_threshold (1e-6: a train task so similar to one of another split trains nothing).
-- Of several groups (a stale one and the one that its members formed then) the one that counts is the one that is not stale.
WITH memberships AS (
    SELECT g.trajectory_id, g.group_id, g."role", g."window", g.seal_reason, g.sealed_night
    FROM groups.groups AS g
    LEFT JOIN groups.stale AS s ON s.group_id = g.group_id
    WHERE g."role" = 'member'
    QUALIFY
        row_number() OVER (
            PARTITION BY g.trajectory_id ORDER BY s.group_id IS NOT NULL, g.sealed_night DESC, g.group_id
        ) = 1
),
today AS (
    SELECT coalesce($night, max(day)) AS day FROM trajectories.trajectories
),
facts AS (
    SELECT
        t.trajectory_id,
        t.day,
        t.task_key,
        t.context_key,
        t.policy_family,
        t.policy_version,
        t.purpose,
        t.exact_tokens,
        t.known_ids,
        t.fault,
        $masked AND coalesce(t.truncated, false) AS is_masked,
        date_diff('day', CAST(t.day AS DATE), CAST(d.day AS DATE)) AS age_days,
        t.num_sampled_turns,
        t.policy_family = $policy AS is_own,
        t.policy_family = 'unknown' AS is_unknown,
        s.split,
        v.policy_version IS NOT NULL AS is_known,
        v.lag,
        n.task_key IS NOT NULL AS is_near,
        coalesce(v.held, false) AS is_held,
        g.group_id,
        g."role",
        g."window",
        g.seal_reason,
        g.sealed_night
    FROM trajectories.trajectories AS t
    CROSS JOIN today AS d
    LEFT JOIN groups.splits AS s ON s.task_key = t.task_key
    LEFT JOIN versions AS v ON v.policy_version = t.policy_version
    LEFT JOIN groups.near AS n ON n.task_key = t.task_key AND n.similarity >= $near_threshold
    LEFT JOIN memberships AS g ON g.trajectory_id = t.trajectory_id
),
reasoned AS (
    SELECT
        *,
        CASE
            WHEN split = 'held_out' THEN 'held_out_task'
            WHEN split = 'audit' THEN 'audit_task'
            WHEN purpose = 'evaluation' THEN 'evaluation_rollout'
            WHEN split IS NULL THEN 'split_pending'
            WHEN is_near THEN 'near_held_out'
            WHEN fault IS NOT NULL THEN 'harness_fault'
            WHEN num_sampled_turns = 0 THEN 'no_sampled_turn'
            WHEN is_masked THEN 'truncated'
            WHEN is_unknown THEN 'unknown_model'
            WHEN NOT is_own THEN 'other_model'
            WHEN NOT is_known THEN 'unknown_policy_version'
            WHEN lag IS NULL THEN 'off_line'
            WHEN lag > $max_policy_lag THEN 'stale'
            WHEN age_days > $max_age_days THEN 'too_old'
            WHEN exact_tokens THEN 'exact_tokens'
            WHEN is_held AND known_ids = 'logged' THEN 'ids_logged'
            WHEN is_held AND known_ids = 'rendered' THEN 'ids_rendered'
            ELSE 'ids_missing'
        END AS eligible_reason
    FROM facts
)
SELECT
    trajectory_id,
    CASE
        WHEN eligible_reason = 'held_out_task' THEN 'held_out'
        WHEN eligible_reason = 'audit_task' THEN 'audit'
        WHEN eligible_reason = 'exact_tokens' THEN 'grpo'
        WHEN eligible_reason IN ('ids_logged', 'ids_rendered') THEN 'grpo_recomputed'
        WHEN eligible_reason IN ('unknown_model', 'other_model', 'ids_missing') THEN 'sft'
        ELSE 'excluded'
    END AS eligible_for,
    eligible_reason,
    split,
    day,
    task_key,
    context_key,
    policy_family,
    policy_version,
    lag,
    purpose,
    fault,
    is_masked AS masked,
    group_id,
    "role",
    "window",
    seal_reason,
    sealed_night
FROM reasoned
ORDER BY trajectory_id
