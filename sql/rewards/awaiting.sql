-- Who waits for a reward under a rubric and settings: everyone in the sealed groups of tasks that may be trained on, but for groups that a replay made stale.
-- A group is settled once it has rewards, except where its newest ones say that the judge failed: it is asked again.
WITH settled AS (
    SELECT group_id
    FROM rewards.rewards
    WHERE rubric_hash = $rubric_hash AND starts_with(reward_key, $settings_key)
    GROUP BY group_id
    HAVING max(sequence) IS DISTINCT FROM max(sequence) FILTER (WHERE reason = 'judge_failed')
)
SELECT
    members.group_id,
    members.trajectory_id,
    members.role,
    members."window",
    members.content_id,
    attempts.fault IS NOT NULL AS fault
FROM groups.groups AS members
ANTI JOIN settled ON settled.group_id = members.group_id
ANTI JOIN groups.stale AS stale ON stale.group_id = members.group_id
LEFT JOIN groups.splits AS splits ON splits.task_key = members.task_key
LEFT JOIN trajectories.trajectories AS attempts ON attempts.trajectory_id = members.trajectory_id
WHERE
    coalesce(splits.split, 'train') = 'train'
    -- an anchor that became another attempt since is no reference any more; a member that did has made its group stale
    AND (
        members.role = 'member'
        OR (attempts.task_key = members.task_key AND attempts.content_id IS NOT DISTINCT FROM members.content_id)
    )
    AND ($sealed_night IS NULL OR members.sealed_night = $sealed_night)
ORDER BY members.group_id, members.trajectory_id
