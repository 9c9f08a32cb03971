-- Where everything goes that no earlier night's batch consumed, with the first reason that holds.
-- Provenance decides before rewards do; then the word is stage 3's own (reasons.ELIGIBLE_REASONS).
WITH in_force AS (
    SELECT
        trajectory_id,
        group_id,
        reward,
        passed,
        ruler_score,
        reason
    FROM rewards.rewards
    WHERE rubric_hash = $rubric_hash AND starts_with(reward_key, $settings_key)
    QUALIFY row_number() OVER (PARTITION BY trajectory_id, group_id ORDER BY sequence DESC, reward_key ASC) = 1
),

consumed AS (
    SELECT
        group_id,
        min(night) AS first_night
    FROM batches.consumed
    GROUP BY group_id
),

-- of a stale group and the one that its members formed then, the second counts
memberships AS (
    SELECT
        members.trajectory_id,
        members.group_id
    FROM groups.groups AS members
    LEFT JOIN groups.stale AS stale ON stale.group_id = members.group_id
    WHERE members.role = 'member'
    QUALIFY row_number() OVER (
        PARTITION BY members.trajectory_id ORDER BY stale.group_id IS NOT NULL, members.sealed_night DESC, members.group_id
    ) = 1
),

attempts AS (
    SELECT
        eligible.trajectory_id,
        eligible.eligible_for,
        eligible.eligible_reason,
        eligible.task_key,
        eligible.context_key,
        members.group_id,
        in_force.reward,
        in_force.passed,
        in_force.ruler_score,
        in_force.reason,
        consumed.first_night,
        stale.group_id IS NOT NULL AS stale,
        refused.trajectory_id IS NOT NULL AS refused,
        cluster_full.trajectory_id IS NOT NULL AS cluster_full,
        coalesce(
            eligible.eligible_for = 'grpo' AND eligible.split = 'train' AND in_force.reward IS NOT NULL
            AND refused.trajectory_id IS NULL,
            false
        ) AS usable
    FROM eligible
    LEFT JOIN memberships AS members ON members.trajectory_id = eligible.trajectory_id
    LEFT JOIN in_force
        ON in_force.trajectory_id = members.trajectory_id AND in_force.group_id = members.group_id
    LEFT JOIN refused ON refused.trajectory_id = eligible.trajectory_id
    LEFT JOIN cluster_full ON cluster_full.trajectory_id = eligible.trajectory_id
    LEFT JOIN consumed ON consumed.group_id = members.group_id
    LEFT JOIN groups.stale AS stale ON stale.group_id = members.group_id
    WHERE consumed.first_night IS NULL OR consumed.first_night >= $night
),

-- attempts that could be siblings, per task and per context of it
contexts AS (
    SELECT
        task_key,
        context_key,
        count(*) AS num_attempts,
        sum(count(*)) OVER (PARTITION BY task_key) AS num_of_task
    FROM eligible
    WHERE eligible_reason NOT IN ('harness_fault', 'evaluation_rollout')
    GROUP BY task_key, context_key
),

grouped AS (
    SELECT
        group_id,
        count(*) FILTER (WHERE usable) AS num_usable,
        max(reward) FILTER (WHERE usable) - min(reward) FILTER (WHERE usable) AS spread,
        max(ruler_score) - min(ruler_score) AS ruler_spread,
        bool_or(passed) AS some_pass
    FROM attempts
    WHERE group_id IS NOT NULL
    GROUP BY group_id
)

SELECT
    attempts.trajectory_id,
    $night AS night,
    attempts.eligible_for,
    attempts.eligible_reason,
    CASE
        WHEN trained.trajectory_id IS NOT NULL THEN trained.lane
        WHEN attempts.eligible_for IN ('held_out', 'audit', 'grpo_recomputed') THEN attempts.eligible_for
        WHEN attempts.eligible_for = 'sft' AND attempts.passed THEN 'sft'
        ELSE 'excluded'
    END AS lane,
    CASE
        WHEN trained.trajectory_id IS NOT NULL THEN 'trained'
        WHEN attempts.first_night > $night THEN 'consumed'
        WHEN attempts.eligible_for IN ('held_out', 'audit', 'excluded') THEN attempts.eligible_reason
        WHEN attempts.group_id IS NULL AND $strict AND contexts.num_attempts = 1 AND contexts.num_of_task > 1
            THEN 'context_mismatch'
        WHEN attempts.group_id IS NULL THEN 'no_siblings'
        WHEN attempts.eligible_for = 'sft' AND attempts.passed IS NULL THEN 'no_verdict'
        WHEN attempts.eligible_for = 'sft' AND NOT grouped.some_pass THEN 'all_fail'
        WHEN attempts.eligible_for = 'sft' AND NOT attempts.passed THEN 'not_passed'
        WHEN attempts.eligible_for <> 'grpo' THEN 'lane_off'
        WHEN attempts.stale AND attempts.first_night IS NULL THEN 'stale_group'
        WHEN attempts.refused THEN 'row_refused'
        WHEN attempts.reward IS NULL AND attempts.reason = 'no_verdict' THEN 'no_verdict'
        WHEN attempts.reward IS NULL AND attempts.reason = 'no_score' AND attempts.ruler_score IS NOT NULL
            THEN 'uncalibrated_judge'
        WHEN attempts.reward IS NULL THEN 'no_reward'
        WHEN attempts.first_night IS NOT NULL THEN 'consumed'
        WHEN grouped.num_usable < 2 THEN 'no_siblings'
        WHEN grouped.spread <= $min_spread AND grouped.ruler_spread > $min_spread THEN 'uncalibrated_judge'
        WHEN grouped.spread <= $min_spread THEN 'no_spread'
        WHEN attempts.cluster_full THEN 'cluster_full'
        ELSE 'lane_off'
    END AS lane_reason,
    attempts.group_id,
    trained.batch_id,
    trained.advantage
FROM attempts
LEFT JOIN grouped ON grouped.group_id = attempts.group_id
LEFT JOIN contexts ON contexts.task_key = attempts.task_key AND contexts.context_key = attempts.context_key
LEFT JOIN trained ON trained.trajectory_id = attempts.trajectory_id
ORDER BY attempts.trajectory_id
