-- Sealed groups whose ground is gone, and that nobody knows of yet: a member has no trajectory any more, or what it was sealed
-- and scored as became another: its task, context, run, policy, turns or logged outcome (a call or a result came late, a log was
-- written anew in place, some answers turned out to be another attempt's), or it is found to be an evaluation or a harness
-- fault, or of another window. Parameters: $strict, $window_days.
SELECT
    g.group_id,
    CASE WHEN bool_or(t.trajectory_id IS NULL) THEN 'member_removed' ELSE 'member_changed' END AS reason,
    list(g.trajectory_id ORDER BY g.trajectory_id) AS trajectory_ids
FROM groups.groups AS g
LEFT JOIN trajectories.trajectories AS t ON t.trajectory_id = g.trajectory_id
ANTI JOIN groups.stale AS s ON s.group_id = g.group_id
WHERE g."role" = 'member'
GROUP BY g.group_id
HAVING bool_or(
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
      OR (
          t.day <> g.day
          AND floor(date_diff('day', DATE '1970-01-01', CAST(t.day AS DATE)) / $window_days)
          <> floor(date_diff('day', DATE '1970-01-01', CAST(g.day AS DATE)) / $window_days)
      )
)
ORDER BY g.group_id
