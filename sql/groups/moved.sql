-- Sealed groups whose ground is gone, and that nobody knows of yet: a member has no trajectory any more, or what it was sealed
-- and scored as became another: its task, context, run, policy, turns or logged outcome (a call or a result came late, a log was
-- written anew in place, some answers turned out to be another attempt's), or it is found to be an evaluation or a harness
-- fault. Parameters: $strict.
SELECT
    g.group_id,
    CASE WHEN bool_or(t.trajectory_id IS NULL) THEN 'member_removed' ELSE 'member_changed' END AS reason
FROM groups.groups AS g
LEFT JOIN trajectories.trajectories AS t ON t.trajectory_id = g.trajectory_id
ANTI JOIN groups.stale AS s ON s.group_id = g.group_id
WHERE g."role" = 'member'
  AND (
      t.trajectory_id IS NULL
      OR t.task_key <> g.task_key
      OR t.run_key IS DISTINCT FROM g.run_key
      OR t.policy_family <> g.policy_family
      OR ($strict AND t.context_key <> g.context_key)
      OR t.policy_version IS DISTINCT FROM g.policy_version
      OR t.content_id IS DISTINCT FROM g.content_id
      OR t.outcome IS DISTINCT FROM g.outcome
      OR t.purpose = 'evaluation'
      OR t.fault IS NOT NULL
  )
GROUP BY g.group_id
ORDER BY g.group_id
