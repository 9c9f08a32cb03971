-- Who may train in a lane tonight: members with a reward in force, eligible for it, of groups with spread that no batch
-- has consumed and no replay made stale; with $again, of the groups that this night's batches consumed. `names` are those of
-- the answers that would train (I14), but for those of records that several attempts share: `shared_answers`.
-- Handed in: eligible; taken (trajectory_id, group_id): what trained under another group is no candidate, not even with $again;
-- without (trajectory_id): not to be returned.
WITH in_force AS (
    SELECT
        trajectory_id,
        group_id,
        reward
    FROM rewards.rewards
    WHERE rubric_hash = $rubric_hash AND starts_with(reward_key, $settings_key)
    QUALIFY row_number() OVER (PARTITION BY trajectory_id, group_id ORDER BY sequence DESC, reward_key ASC) = 1
),

consumed AS (
    SELECT
        group_id,
        count(DISTINCT batch_id) AS num_batches,
        bool_or(night = $night AND lane = $lane) AS tonight
    FROM batches.consumed
    GROUP BY group_id
),

used AS (
    SELECT DISTINCT members.trajectory_id
    FROM groups.groups AS members
    INNER JOIN consumed ON consumed.group_id = members.group_id
    WHERE members.role = 'member'
),

usable AS (
    SELECT
        members.group_id,
        members.trajectory_id,
        members."window",
        in_force.reward,
        coalesce(consumed.num_batches, 0) AS num_batches,
        max(in_force.reward) OVER by_group - min(in_force.reward) OVER by_group AS spread
    FROM groups.groups AS members
    INNER JOIN in_force
        ON in_force.trajectory_id = members.trajectory_id AND in_force.group_id = members.group_id
    INNER JOIN eligible ON eligible.trajectory_id = members.trajectory_id
    LEFT JOIN consumed ON consumed.group_id = members.group_id
    LEFT JOIN used ON used.trajectory_id = members.trajectory_id
    ANTI JOIN groups.stale AS stale ON stale.group_id = members.group_id
    ANTI JOIN taken ON taken.trajectory_id = members.trajectory_id AND taken.group_id <> members.group_id
    WHERE
        members.role = 'member'
        AND in_force.reward IS NOT NULL
        AND eligible.eligible_for = $lane
        AND eligible.split = 'train'
        AND CASE WHEN $again THEN coalesce(consumed.tonight, false) ELSE used.trajectory_id IS NULL END
    WINDOW by_group AS (PARTITION BY members.group_id)
)

SELECT
    usable.group_id,
    usable.trajectory_id,
    usable."window",
    usable.reward,
    usable.num_batches,
    attempts.policy_version,
    attempts.num_sampled_tokens,
    attempts.calls,
    list_sort(list_concat(
        list_filter(
            attempts.record_ids,
            lambda r: NOT coalesce(list_contains(list_transform(attempts.shared_answers, lambda a: split_part(a, '+', 1)), r), false)
        ),
        CASE WHEN attempts.shared_answers IS NULL THEN
            list_transform(
                list_filter(attempts.call_ids, lambda c: NOT list_contains(coalesce(attempts.copied_call_ids, []), c)),
                lambda c: attempts.format || ':' || c
            )
        END
    )) AS names,
    attempts.shared_answers
FROM usable
INNER JOIN trajectories.trajectories AS attempts ON attempts.trajectory_id = usable.trajectory_id
ANTI JOIN without ON without.trajectory_id = usable.trajectory_id
WHERE usable.spread > $min_spread
ORDER BY usable.group_id, usable.trajectory_id
