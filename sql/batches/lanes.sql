-- Where everything goes that no earlier night's batch consumed, with the first reason that holds.
-- Provenance decides before rewards do; then the word is stage 3's own (reasons.ELIGIBLE_REASONS).
-- Handed in: eligible, trained, refused, cluster_full (trajectory_id each), alone (trajectory_id, reason) and singles
-- (trajectory_id, passed) of those in no group, taken (trajectory_id, group_id): what trained under another group counts as consumed.
-- Parameters: $night, $rubric_hash, $settings_key, $min_spread, $window_days.
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

taken_elsewhere AS (
    SELECT DISTINCT taken.trajectory_id
    FROM taken
    LEFT JOIN memberships AS members ON members.trajectory_id = taken.trajectory_id
    WHERE taken.group_id IS DISTINCT FROM members.group_id
),

attempts AS (
    SELECT
        eligible.trajectory_id,
        eligible.eligible_for,
        eligible.eligible_reason,
        strftime(
            DATE '1970-01-01'
            + CAST(floor(date_diff('day', DATE '1970-01-01', CAST(eligible.day AS DATE)) / $window_days) * $window_days AS INTEGER),
            '%Y-%m-%d'
        ) AS "window",
        members.group_id,
        in_force.reward,
        coalesce(in_force.passed, singles.passed) AS passed,
        in_force.ruler_score,
        in_force.reason,
        consumed.first_night,
        stale.group_id IS NOT NULL AS stale,
        refused.trajectory_id IS NOT NULL AS refused,
        elsewhere.trajectory_id IS NOT NULL AS taken,
        cluster_full.trajectory_id IS NOT NULL AS cluster_full,
        coalesce(
            eligible.eligible_for IN ('grpo', 'grpo_recomputed') AND eligible.split = 'train' AND in_force.reward IS NOT NULL
            AND refused.trajectory_id IS NULL AND elsewhere.trajectory_id IS NULL,
            false
        ) AS usable
    FROM eligible
    LEFT JOIN memberships AS members ON members.trajectory_id = eligible.trajectory_id
    LEFT JOIN in_force
        ON in_force.trajectory_id = members.trajectory_id AND in_force.group_id = members.group_id
    LEFT JOIN refused ON refused.trajectory_id = eligible.trajectory_id
    LEFT JOIN cluster_full ON cluster_full.trajectory_id = eligible.trajectory_id
    LEFT JOIN singles ON singles.trajectory_id = eligible.trajectory_id
    LEFT JOIN taken_elsewhere AS elsewhere ON elsewhere.trajectory_id = eligible.trajectory_id
    LEFT JOIN consumed ON consumed.group_id = members.group_id
    LEFT JOIN groups.stale AS stale ON stale.group_id = members.group_id
    WHERE consumed.first_night IS NULL OR consumed.first_night >= $night
),

grouped AS (
    SELECT
        group_id,
        eligible_for,
        count(*) FILTER (WHERE usable) AS num_usable,
        max(reward) FILTER (WHERE usable) - min(reward) FILTER (WHERE usable) AS spread,
        max(max(ruler_score)) OVER by_group - min(min(ruler_score)) OVER by_group AS ruler_spread,
        bool_or(bool_or(passed)) OVER by_group AS some_pass
    FROM attempts
    WHERE group_id IS NOT NULL
    GROUP BY group_id, eligible_for
    WINDOW by_group AS (PARTITION BY group_id)
),

reasoned AS (
    SELECT
        attempts.*,
        trained.batch_id,
        trained.advantage,
        trained.lane AS trained_lane,
        CASE
            WHEN trained.trajectory_id IS NOT NULL THEN 'trained'
            WHEN attempts.first_night > $night THEN 'consumed'
            WHEN attempts.eligible_for IN ('held_out', 'audit', 'excluded') THEN attempts.eligible_reason
            WHEN attempts.taken THEN 'consumed'
            WHEN attempts.eligible_for = 'sft' AND attempts.passed AND coalesce(grouped.some_pass, true) THEN 'lane_off'
            WHEN attempts.eligible_for = 'sft' AND NOT attempts.passed AND NOT coalesce(grouped.some_pass, true) THEN 'all_fail'
            WHEN attempts.eligible_for = 'sft' AND NOT attempts.passed THEN 'not_passed'
            WHEN attempts.group_id IS NULL THEN coalesce(alone.reason, 'no_siblings')
            WHEN attempts.eligible_for = 'sft' THEN 'no_verdict'
            WHEN attempts.stale AND attempts.first_night IS NULL THEN 'stale_group'
            WHEN attempts.refused THEN 'row_refused'
            WHEN attempts.reward IS NULL AND attempts.reason IN ('no_verdict', 'too_few') THEN attempts.reason
            WHEN attempts.reward IS NULL AND attempts.reason = 'no_score' AND attempts.ruler_score IS NOT NULL
                THEN 'uncalibrated_judge'
            WHEN attempts.reward IS NULL THEN 'no_reward'
            WHEN attempts.first_night IS NOT NULL THEN 'consumed'
            WHEN grouped.num_usable < 2 THEN 'no_siblings'
            WHEN grouped.spread <= $min_spread AND grouped.ruler_spread > $min_spread THEN 'uncalibrated_judge'
            WHEN grouped.spread <= $min_spread THEN 'no_spread'
            WHEN attempts.cluster_full THEN 'cluster_full'
            ELSE 'lane_off'
        END AS lane_reason
    FROM attempts
    LEFT JOIN grouped ON grouped.group_id = attempts.group_id AND grouped.eligible_for = attempts.eligible_for
    LEFT JOIN alone ON alone.trajectory_id = attempts.trajectory_id
    LEFT JOIN trained ON trained.trajectory_id = attempts.trajectory_id
)

SELECT
    trajectory_id,
    $night AS night,
    eligible_for,
    eligible_reason,
    CASE
        WHEN trained_lane IS NOT NULL THEN trained_lane
        WHEN eligible_for IN ('held_out', 'audit') THEN eligible_for
        -- what a lane would train that is not switched on is named by its lane
        WHEN eligible_for IN ('sft', 'grpo_recomputed') AND lane_reason = 'lane_off' THEN eligible_for
        ELSE 'excluded'
    END AS lane,
    lane_reason,
    group_id,
    "window",
    batch_id,
    advantage
FROM reasoned
ORDER BY trajectory_id
