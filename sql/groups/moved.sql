-- Sealed groups whose ground is gone, and that nobody knows of yet: a member has no trajectory any more, or its task, policy or
-- context became another (a log was written anew in place, a parser cannot read a bundle that grew), or some of its answers
-- turned out to be another attempt's. Parameters: $strict.
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
      OR t.policy_family <> g.policy_family
      OR ($strict AND t.context_key <> g.context_key)
      OR (len(t.copied_call_ids) > 0 AND t.content_id <> g.content_id)
  )
GROUP BY g.group_id
ORDER BY g.group_id
